#!/usr/bin/env python3
"""Makes the tiny tokenizers of this folder and expected.json, the ids of tricky texts.

    make.py FOLDER TEXT     (pip install tokenizers sentencepiece; TEXT: tinyshakespeare)

The tests need neither this script nor those packages. Manual work afterwards: remove gpt2.json (the
folder gpt2 has the same content), and give expected.json one line per text and names of files."""
import json, os, sys, glob
from tokenizers import Tokenizer, models, pre_tokenizers, normalizers, trainers, decoders, AddedToken, Regex
import sentencepiece as spm
out=sys.argv[1]; os.makedirs(out, exist_ok=True)
text=open(sys.argv[2]).read()[:20000]
extra=" naïve café Zürich 123 4567 12345678 don't I'll we've DON'T 你好 世界 日本語 🙂🎵 привет мир\n\n\tend\r\n"*20
open('train.txt','w').write(text+extra)
lines=(text+extra).split('\n')
L3="(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
toks={}
def bl(pre, **kw):
    t=Tokenizer(models.BPE(**kw)); t.pre_tokenizer=pre; t.decoder=decoders.ByteLevel()
    t.train_from_iterator([text+extra], trainers.BpeTrainer(vocab_size=420, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t
toks['gpt2']=bl(pre_tokenizers.ByteLevel(add_prefix_space=False))
toks['roberta']=bl(pre_tokenizers.ByteLevel(add_prefix_space=True)); toks['roberta'].add_special_tokens([AddedToken('<mask>',lstrip=True,special=True)])
t=bl(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(L3),'isolated'),pre_tokenizers.ByteLevel(add_prefix_space=False,use_regex=False)]))
j=json.loads(t.to_str()); j['model']['ignore_merges']=True; toks['llama3']=Tokenizer.from_str(json.dumps(j))
# llama2
t=Tokenizer(models.BPE(byte_fallback=True,unk_token='<unk>',fuse_unk=True))
t.normalizer=normalizers.Sequence([normalizers.Prepend('▁'),normalizers.Replace(' ','▁')])
t.pre_tokenizer=pre_tokenizers.Metaspace(split=True) 
t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=480,special_tokens=['<unk>','<s>','</s>']+['<0x%02X>'%i for i in range(256)],show_progress=False,limit_alphabet=60))
t.pre_tokenizer=pre_tokenizers.Sequence([])
j=json.loads(t.to_str()); j['pre_tokenizer']=None; j['added_tokens']=[a for a in j['added_tokens'] if not a['content'].startswith('<0x')]
toks['llama2']=Tokenizer.from_str(json.dumps(j))
# unigram xlmr-like
t=Tokenizer(models.Unigram())
t.pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),pre_tokenizers.Metaspace(prepend_scheme='always')])
t.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=300,special_tokens=['<s>','<pad>','</s>','<unk>'],unk_token='<unk>',show_progress=False))
toks['unigram']=t
t=Tokenizer(models.WordPiece(unk_token='[UNK]'))
t.normalizer=normalizers.BertNormalizer(); t.pre_tokenizer=pre_tokenizers.BertPreTokenizer()
t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=420,special_tokens=['[PAD]','[UNK]','[CLS]','[SEP]','[MASK]'],show_progress=False,limit_alphabet=120))
toks['bert']=t
CASES=["", "a", " ", "  ", "Hello world", "I'll don't WE'VE it's 's 'S x'ſ ''d", "  two  spaces   x ", "\t\ttabs\n\n\nlines\r\n\r\n x", "\n", " \n \n", "123 45678901 ١٢٣ ½ 3.14", "naïve café Zürich Ａｂｃ ﬁ İstanbul ǅ", "你好世界 日本語のテキスト", "🙂🎵👨‍👩‍👧 emoji", "привет, мир!  Ελλάδα", "한국어 각 tést e\u0301", "a\u00a0b\u2003c\u3000d\u200be\ufeff", "<|endoftext|>x<|endoftext|> y <mask> z", "[CLS] [MASK] x[SEP]", "</s><s> a</s>b", "!!!...?;: (foo)[bar]\n\n{baz}\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "thethethethethethethethethethethethethethethethethethethethethe", "end with space ", "\u0000nul\u0007bell", "x<0x41>y ▁ ▁▁x", "To be, or not to be: that is the question.\nWhether 'tis nobler"]
expected={}
for n,t in toks.items():
    t.save(f'{out}/{n}.json', pretty=False)
    expected[n]=[t.encode(c, add_special_tokens=False).ids for c in CASES]
os.makedirs(f'{out}/gpt2',exist_ok=True)
j=json.loads(toks['gpt2'].to_str())
json.dump(j['model']['vocab'],open(f'{out}/gpt2/vocab.json','w'))
open(f'{out}/gpt2/merges.txt','w').write('#version: 0.2\n'+''.join((m if isinstance(m,str) else ' '.join(m))+'\n' for m in j['model']['merges']))
expected['gpt2/vocab']=expected['gpt2']
for kind,kw in (('unigram',dict(normalization_rule_tsv='rules.tsv')),('bpe',dict(byte_fallback=True,normalization_rule_name='identity',remove_extra_whitespaces=False))):
    spm.SentencePieceTrainer.train(input='train.txt',model_prefix=f'{out}/spm_{kind}',vocab_size=480,model_type=kind,character_coverage=0.98 if kind=='bpe' else 0.995,user_defined_symbols=['<sep>'],minloglevel=2,hard_vocab_limit=False,**kw)
    os.remove(f'{out}/spm_{kind}.vocab')
    p=spm.SentencePieceProcessor(model_file=f'{out}/spm_{kind}.model')
    expected[f'spm_{kind}']=[p.encode(c) for c in CASES]
json.dump({'cases':CASES,'expected':expected},open(f'{out}/expected.json','w'),ensure_ascii=True)
