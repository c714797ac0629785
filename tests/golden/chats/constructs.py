#!/usr/bin/env python3
"""Writes constructs.jsonl: small templates of our own, each with its text by transformers.

    constructs.py            prints the file
    constructs.py --check    compares it with the file beside this program

Each line of TEMPLATES is a template, and so are five of them in sequence, whose line ends meet.
"""
import importlib.util
import json
import os
import sys

if importlib.util.find_spec("transformers") is None:
    print("skipped: %s has no transformers (PyPI has it)" % sys.executable)
    sys.exit(77)

from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "constructs.jsonl")
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "T"}]}, {"role": "assistant", "content": "hi"}]
TEMPLATES = r"""
{{ 1 + 2 * 3 - 4 // 3 % 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7 / 2 }}|{{ 2 ** 3 ** 2 }}|{{ 2 ** -1 }}|{{ 6 / 3 }}
{{ 1.5 + 1 }}|{{ 1e3 }}|{{ 1e16 }}|{{ 1e15 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 1.0 }}|{{ 0.1 + 0.2 }}|{{ 1_000 }}|{{ 123456789.125 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}
{{ 'a' + 'b' }}|{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }}|{{ 'ab' * 3 }}|{{ 3 * 'ab' }}|{{ [1] + [2] }}|{{ (1, 2) + (3,) }}|{{ [0] * 3 }}
{{ true }}|{{ false }}|{{ none }}|{{ True }}|{{ None }}|{{ [1, 'a', none, true, 1.5, "it's", 'q"', 'both\'"'] }}|{{ {'a': 1, 'b': [1, 2]} }}|{{ (1,) }}|{{ () }}|{{ (1, 2) }}
{{ 'a\nb\t\\' }}|{{ ['a\nb\t\\\r', '\x00\x7f', 'é', '日本', '\u200b', '\xa0', '\U0001F600'] }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 1 == 1.0 == true }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ 'a' in 'abc' }}|{{ 'a' not in ['b'] }}|{{ 1 in [1, 2] }}|{{ 'k' in {'k': 1} }}|{{ not 1 in [1] }}
{{ 1 if true else 2 }}|{{ 1 if false }}|{{ 1 if false else 2 if false else 3 }}|{{ (1 if x is defined else 2) + 1 }}
{{ x is defined }}|{{ x is undefined }}|{{ x }}|{{ x | default('d') }}|{{ '' | default('d', true) }}|{{ none | default('d') }}|{{ none | d('e', boolean=true) }}|{{ x == y }}|{{ not x }}
{{ 1 is number }}{{ true is number }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is iterable }}{{ 'a' is iterable }}{{ none is none }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 3 is odd }}{{ 3 is even }}{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is lt 2 }}{{ 2 is in [1, 2] }}{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ none is not none }}{{ x is sequence }}{{ range is callable }}{{ 'a' is sameas 'a' }}
{{ 'abc'[0] }}|{{ 'abc'[-1] }}|{{ 'abc'[1:] }}|{{ 'abc'[:-1] }}|{{ 'abc'[::-1] }}|{{ 'abcdef'[1:5:2] }}|{{ 'abc'[5:] }}|{{ [1,2,3][::-1] }}|{{ [1,2,3][1:] }}|{{ [1,2,3][-2:] }}|{{ [1,2,3][:1] }}|{{ (1,2,3)[1:] }}|{{ [1,2,3][10] is defined }}|{{ 'äöü'[1] }}|{{ 'äöü'[1:] }}|{{ [1,2,3][-100:100] }}|{{ [1,2,3,4][3:0:-2] }}
{{ {'a': {'b': 1}}.a.b }}|{{ {'a': 1}['a'] }}|{{ {'a': 1}.get('a') }}|{{ {'a': 1}.get('z') }}|{{ {'a': 1}.get('z', 5) }}|{{ {'a': 1}.items() | list }}|{{ {'a': 1}.keys() | list }}|{{ {'a': 1}.values() | list }}|{{ {'a': 1}.items() }}|{{ {'a': 1}.keys() }}|{{ {1: 2}[1] }}|{{ {'items': 3}['items'] }}|{{ {'a': 1}.z is defined }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in {'a': 1} %}{{ k }}{% endfor %}|{% for c in 'añb' %}{{ c }}-{% endfor %}
{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}
{% for x in [1,2,3] %}{{ loop.previtem is defined }}{{ loop.previtem }}{{ loop.nextitem is defined }}{{ loop.nextitem }},{% endfor %}
{% for x in [1,2,3,4] if x % 2 == 0 %}{{ x }}{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}|{% for x in [] %}{{ x }}{% else %}empty{% endfor %}|{% for x in [1] if x > 5 %}{{ x }}{% else %}none{% endfor %}
{% for x in [1,2,3,4,5] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1,2] %}{% for y in [1,2,3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1,2,3] %}{{ loop.cycle('a', 'b') }}{% endfor %}|{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}
{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3, 'c': []}]}]}, {'v': 4, 'c': []}] recursive %}{{ n.v }}{{ loop.depth }}[{{ loop(n.c) }}]{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}|{% set ns.z = [1] %}{{ ns.z }}{{ ns.w is defined }}
{% if true %}{% set y = 5 %}{% endif %}{{ y }}|{% if false %}{% set z = 5 %}{% endif %}{{ z is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set (c, d) = [3, 4] %}{{ c }}{{ d }}|{% set t = 1, 2 %}{{ t }}
{% set x %}hello {{ 1 + 1 }}{% endset %}{{ x }}{{ x | length }}|{% set x | upper | trim %}  abc {% endset %}[{{ x }}]
{% macro f(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 2) }}|{{ f(1, c=3) }}|{{ f(b=2, a=1) }}|{{ f() }}|{{ f.name }}
{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}
{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}body{% endcall %}|{% macro l(xs) %}{% for x in xs %}{{ caller(x) }};{% endfor %}{% endmacro %}{% call(x) l([1,2]) %}<{{ x }}>{% endcall %}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) }}
{% macro d(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ d(1) }}{{ d(1, 2) }}
{% filter upper %}abc{{ 'd' }}{% endfilter %}|{% filter replace('a', 'b') | upper %}aaa{% endfilter %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% raw %}{{ not }} {% x %}{% endraw %}|{# comment {{ x }} #}|
{{ '  a b  ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 'abc' | upper }}|{{ 'ABC' | lower }}|{{ 'hello world-foo (bar' | title }}|{{ 'hELLO wORLD' | capitalize }}|{{ 'aXbXc' | replace('X', '-') }}|{{ 'aXbXc' | replace('X', '-', 1) }}|{{ 'abc' | length }}|{{ [1,2] | count }}
{{ [3,1,2] | sort }}|{{ [3,1,2] | sort(reverse=true) }}|{{ ['b','A','c'] | sort }}|{{ ['b','A','c'] | sort(case_sensitive=true) }}|{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') }}|{{ [1,1,2] | unique | list }}|{{ ['a','A','b'] | unique | list }}|{{ [1,2,3] | reverse | list }}|{{ 'abc' | reverse }}
{{ [1,2,3] | join(', ') }}|{{ [1,2] | join }}|{{ [{'a': 1}, {'a': 2}] | join(',', attribute='a') }}|{{ 'abc' | join('-') }}|{{ [1,2,3] | first }}|{{ [1,2,3] | last }}|{{ 'abc' | first }}|{{ 'abc' | last }}|{{ 'abc' | list }}|{{ [] | first is defined }}
{{ [{'r': 'u', 'c': 1}, {'r': 'a', 'c': 2}] | selectattr('r', 'equalto', 'u') | list }}|{{ [{'r': 1}, {'r': 0}, {}] | selectattr('r') | list }}|{{ [{'r': 'u'}, {'r': 'a'}] | rejectattr('r', 'eq', 'u') | map(attribute='r') | list }}|{{ ['a', 'b'] | map('upper') | list }}|{{ [1,2,3] | select('odd') | list }}|{{ [1,2,3] | reject('gt', 1) | list }}|{{ [0, 1] | select | list }}|{{ [{'a': {'b': 1}}, {}] | map(attribute='a.b', default='z') | list }}|{{ [[1, 2], [3, 4]] | map(attribute=1) | list }}|{{ ['a b'] | map('replace', ' ', '_') | first }}
{{ {'b': 1, 'a': 2} | dictsort }}|{{ {'b': 1, 'a': 2} | dictsort(false, 'value') }}|{{ {'b': 1, 'A': 2} | dictsort(true) }}|{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}|{{ {'a': 1} | items | list }}|{{ {'a': 1} | list }}|{{ {'a': 1} | length }}
{{ '42' | int }}|{{ 'x' | int }}|{{ 'x' | int(7) }}|{{ '3.7' | int }}|{{ 3.9 | int }}|{{ '1.5' | float }}|{{ 'x' | float }}|{{ '0x1f' | int(base=16) }}|{{ -3 | abs }}|{{ 2.5 | round }}|{{ 3.5 | round }}|{{ 2.567 | round(2) }}|{{ 2.1 | round(0, 'ceil') }}|{{ 2.9 | round(method='floor') }}|{{ 5 | round }}|{{ true | int }}|{{ 1 | string + 'a' }}|{{ ' 12 ' | int }}
{{ [1,2,3] | sum }}|{{ [{'n': 2}, {'n': 1}] | sum(attribute='n') }}|{{ [1,2] | sum(start=10) }}|{{ [3,1] | min }}|{{ [3,1] | max }}|{{ [{'n': 2}, {'n': 1}] | max(attribute='n') }}
{{ {'a': [1, 2.5, none, true, "x\"y\n\té<>&'"]} | tojson }}|{{ {'b': 1, 'a': {}} | tojson(indent=2) }}|{{ [] | tojson(indent=4) }}|{{ [1, [2, {'k': 'v'}]] | tojson(indent=4) }}|{{ 'é日\U0001F600\x7f' | tojson(ensure_ascii=true) }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}|{{ {'a': 1, 'b': 2} | tojson(separators=(',', ':')) }}|{{ 1.0 | tojson }}{{ 1e20 | tojson }}{{ none | tojson }}{{ 'a' | tojson }}|{{ (1, 2) | tojson }}|{{ {1: 2, none: 3, true: 4} | tojson }}|{{ {'a': 1} | tojson(indent='  ') }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb\n\nc' | indent(2, true) }}|{{ 'a\nb\n\nc' | indent(width=3, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\n' | indent(2) }}|{{ '' | indent(2, true) }}
{{ 'a b c'.split() }}|{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ ' a b c '.split(none, 1) }}|{{ ' a b c '.rsplit(none, 1) }}|{{ 'a</think>b</think>c'.split('</think>')[-1] }}|{{ 'x'.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
{{ '  a '.strip() }}|{{ 'xax'.strip('x') }}|{{ 'xax'.lstrip('x') }}|{{ 'xax'.rstrip('x') }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.startswith('b', 1) }}|{{ 'abcabc'.find('c') }}|{{ 'abcabc'.rfind('c') }}|{{ 'abc'.find('z') }}|{{ 'ab'.upper() }}{{ 'AB'.lower() }}|{{ "they're bill's friends".title() }}|{{ 'hELLO'.capitalize() }}|{{ 'a-b'.replace('-', '+') }}|{{ 'aaa'.replace('a', 'b', 2) }}|{{ 'abab'.count('ab') }}|{{ 'ab'.replace('', '-') }}|{{ 'a'.ljust(3) }}.|{{ 'a'.rjust(3) }}.|{{ '7'.zfill(3) }}|{{ ','.join(['a', 'b']) }}|{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ 'a\nb\r\nc'.splitlines() }}|{{ 'abc'.index('b') }}|{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'a1'.isalnum() }}
{{ 'ÀÉ'.lower() }}|{{ 'àéßñ'.upper() }}|{{ 'ΑΣ'.lower() }}|{{ 'привет мир' | title }}|{{ 'привет' | capitalize }}|{{ 'ΣΑΣ ΑΣ.'.lower() }}
{{ '%s and %d' % ('a', 3) }}|{{ '%5.2f|%-5s|%05d' % (3.14159, 'x', 42) }}|{{ '%s' % 'x' }}|{{ '%r' % ('x',) }}|{{ '100%%' % () }}|{{ '%s %s' | format('a', 'b') }}|{{ '%x %X %o' % (255, 255, 8) }}|{{ '%(a)s' % {'a': 1} }}|{{ '{} {}'.format('a', 1) }}|{{ '{1} {0} {x} {{}}'.format('a', 'b', x=3) }}|{{ '%+d % d' % (3, 4) }}|{{ '%e' % 12345.678 }}|{{ '%g' % 0.0001 }}|{{ '%.3s' % 'abcdef' }}
{{ range(3) | list }}|{{ range(1, 10, 3) | list }}|{{ range(3, 0, -1) | list }}|{{ range(3) }}|{{ range(0) | list }}|{{ range(5)[2] }}|{{ range(5) | length }}
{{ dict(a=1, b=2) }}|{{ dict({'a': 1}, b=2) }}|{{ dict([('a', 1)]) }}|{{ dict(**{'x': 1}) }}|{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b|{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{% set msgs = [{'role': 'user'}, {'role': 'assistant'}] | selectattr('role', 'equalto', 'user') %}{{ msgs | list | length }}{{ msgs | list | length }}
  {%- if true -%}  a  {%- endif -%}  b  {{- ' c ' -}}  d
{{ [1, 2, ] }}|{{ {'a': 1, } }}|{{ 'a' 'b' }}|{{ -1 | abs }}|{{ 1 - 1 | abs }}|{{ -2 ** 2 }}|{{ not true or true }}|{{ not (true or true) }}|{{ 1 or 2 }}|{{ 0 or 'x' }}|{{ 1 and 2 }}|{{ '' and 2 }}|{{ 1 == 1 and 2 == 2 }}
{{ 'a' ~ 'b' | upper }}|{{ ('a' ~ 'b') | upper }}|{{ 'a' + 'b' ~ 'c' + 'd' }}|{{ 2 * 3 ~ 4 }}
{{ [1,2,3] | batch(2) | list }}|{{ [1,2,3] | batch(2, 0) | list }}|{{ [{'k': 'a', 'v': 1}, {'k': 'b', 'v': 2}, {'k': 'a', 'v': 3}] | groupby('k') | list }}|{% for k, g in [{'k': 'a', 'v': 1}, {'k': 'b', 'v': 2}, {'k': 'a', 'v': 3}] | groupby('k') %}{{ k }}:{{ g | map(attribute='v') | join(',') }};{% endfor %}
{{ '<a href="x">&\'' | escape }}|{{ 'a b/c?é' | urlencode }}|{{ 'a b c' | wordcount }}|{{ 'ab' | center(6) }}.|{{ 'abc' | center(6) }}.|{{ 'hello world foo' | truncate(9) }}|{{ 'hello world foo' | truncate(9, true, '', 0) }}|{{ 'x' | safe }}|{{ {'a': 1} | attr('a') is defined }}
{{ true + 1 }}|{{ true and 'x' }}|{{ none == none }}|{{ {} == {} }}|{{ [1, [2]] == [1, [2]] }}|{{ {'a': 1} == {'a': 1.0} }}|{{ (1,) == [1] }}|{{ 1 != 2 }}|{{ 'a' == 1 }}
{% set x = {'a': 1} %}{% set y = dict(x, **{'b': 2}) %}{{ y }}|{{ x }}
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}|{% set ns = namespace({'q': 2}) %}{{ ns.q }}|{{ ns }}
{% generation %}a{{ 1 }}{% endgeneration %}b{% for i in [1,2] %}{% generation %}{{ i }}{% endgeneration %}x{% endfor %}
{{ 'x' if 1 > 2 else 'y' ~ 'z' }}|{{ ['a', 'b'][1 if true else 0] }}|{{ {'a': 1 if true else 2} }}
{{ messages.0.role }}|{{ messages[0]['role'] }}|{{ messages[0].content[0].text }}|{{ messages | length }}|{{ messages[-1].role }}
{% if messages[0]['role'] == 'system' %}S{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{{ m.role }}{{ loop.index }}{% endfor %}
{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}bad{% endif %}{% if m.content is string %}{{ m.content }}{% elif m.content is iterable %}{% for p in m.content %}{{ p.type }}{% endfor %}{% else %}?{% endif %}{% endfor %}
{% set x = 'a' %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 'b' %}{{ m() }}|{% for x in [1] %}{% macro k() %}{{ x }}{% endmacro %}{{ k() }}{% endfor %}
{{ "a" if x is not defined else "b" }}|{{ x is defined and x }}|{{ (x | default([])) | length }}|{% if not x is defined %}u{% endif %}|{{ x is not none }}
{%- for i in range(3) -%}{{ i }}{%- if not loop.last -%},{%- endif -%}{%- endfor -%}
{{ 'a' in x }}|{{ x | list }}|{{ x | length }}|{{ x | join }}|{{ 'q' ~ x }}|{{ x | upper }}
{{ [1, 2, 3][1:][0] }}|{{ 'abc'.upper()[0] }}|{{ ('a,b' | replace(',', ';')).split(';')[1] }}|{{ {'f': {'g': [1, {'h': 'i'}]}}.f.g[1].h }}
{{ '{' ~ '}' }}|{{ "{{" }}|{{ '%}' }}|{{ {'a': {'b': {}}} }}
{{ 'a' is in ['a'] }}|{{ 1 is gt 0 }}|{{ 'x' is string and 1 is number }}|{{ [] is not mapping }}|{{ 3 is not divisibleby(2) }}
{% set s = 'é' %}{{ s | length }}{{ 'é日' | tojson }}{{ '日本語'[::2] }}{{ '日本語' | reverse }}
{{ '' | trim | length }}|{{ ' ' | trim == '' }}|{{ '\n a \n' | trim }}|{{ '\u00a0x\u2003'.strip() }}|
{{ 5 | string | length }}|{{ [none, 1] | tojson }}|{{ none | string }}|{{ 1.5 | string }}|{{ [1, 2] | string }}
{{ '<'|safe + '&' }}|{{ '&' + '<b>'|safe }}|{{ '<'|e + '<' }}|{{ '<'|e|e }}|{{ ('<'|safe) ~ '&' }}|{{ '<' is escaped }}{{ '<'|safe is escaped }}|{{ none | selectattr('a') | list }}|{{ none | map('upper') | list }}|{{ none | reject('a') | list }}
"""

SEVERAL_LINES = [r"""  {% if true %}  
x
  {% endif %}
y
a {# c #} b {#- d -#} c
  {%+ if true +%}
z{% endif %}
{% if true %}
a
{% endif %}
{{ 'b' }}
  {{ 'c' }}  
d
{% for x in [1,2] -%}
  {{ x }}
{%- endfor %}
""", "{{ ('a'\n 'b') }}\n\n", "a\r\nb\rc\n{%- if true %}\r\n x\r\n{% endif %}", "{% raw %}\n {{ x }}\n  {%- endraw %}\n y"]


def record(template):
    text, spans = render_jinja_template([MESSAGES], chat_template=template, return_assistant_tokens_mask=True)
    marks = [len(text[0][:at].encode()) for span in spans[0] for at in span]
    return json.dumps({"template": template, "text": text[0], "spans": marks}, ensure_ascii=False)


def main():
    lines = TEMPLATES.strip("\n").split("\n")
    lines += SEVERAL_LINES + ["\n".join(lines[i:i + 5]) for i in range(0, len(lines) - 5, 5)]
    made = "".join(record(template) + "\n" for template in lines)
    if "--check" not in sys.argv:
        sys.stdout.write(made)
        return 0
    with open(FILE, encoding="utf-8", newline="") as file:
        kept = file.read()
    for old, new in zip(kept.split("\n"), made.split("\n")):
        if old != new:
            print("constructs.jsonl has\n%s\nand transformers gives\n%s" % (old, new))
            return 1
    return int(len(kept) != len(made))


if __name__ == "__main__":
    sys.exit(main())
