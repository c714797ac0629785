"""Logs of choir train in the tools that they are for: TensorBoard's EventAccumulator, MLflow, W&B's
reader of offline runs, prometheus_client's parser. A tool that is absent is skipped by name; losses
are compared bit by bit with those that --json prints, also of a run that was killed and goes on.

    logs.py tensorboard|mlflow|wandb|metrics
"""
import glob
import http.server
import importlib.util
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
import urllib.request

CHOIR = os.environ['CHOIR']
NEEDS = {'tensorboard': 'tensorboard', 'mlflow': 'mlflow', 'wandb': 'wandb',
         'metrics': 'prometheus_client'}
MODEL = 'gpt2:layers=1,heads=2,width=16,context=16'
STEPS = 900  # more lines than a pipe takes, so a job that is not read cannot end
ENV = dict(os.environ, CUDA_VISIBLE_DEVICES='')


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


def bits(x):
    return struct.pack('f', x)


def choir(*words):
    return [CHOIR, 'train', '--json', *words]


def steps_of(lines):
    """Step -> (loss as printed, bits) of lines of JSON."""
    rows = [json.loads(line) for line in lines if line.strip()]
    return {row['step']: row for row in rows if row['event'] == 'step'}


def loss_bits(row):
    return struct.pack('<I', int(row['loss_bits'], 16))


def kill_and_go_on(log, text):
    """Runs a job that is killed after some steps, and resumes it. Returns all steps' rows."""
    job = ['--steps', str(STEPS), '--batch-size', '12', '--microbatches', '2', '--model', MODEL,
           '--eval-every', '200', '--save-every', '100', '--save', 'run', '--log', log]
    whole = subprocess.run(choir(*job[:-4], text), check=True, env=ENV, capture_output=True,
                           text=True)
    first = subprocess.Popen(choir(*job, text), env=ENV, stdout=subprocess.PIPE, text=True)
    for line in first.stdout:
        if '"step":250,' in line:
            break
    first.kill()
    first.wait()
    subprocess.run(choir('--resume', 'run', '--log', log), check=True, env=ENV,
                   stdout=subprocess.PIPE)
    rows = steps_of(whole.stdout.splitlines())
    assert len(rows) == STEPS
    return rows


def tensorboard(text):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    rows = kill_and_go_on('tensorboard:tb', text)
    assert len(glob.glob('tb/*')) == 2
    with open(sorted(glob.glob('tb/*'))[-1], 'ab') as last:
        last.write(b'\x30\0\0\0\0\0\0\0half a record')  # as a kill in mid-write leaves it
    read = EventAccumulator('tb', size_guidance={'scalars': 0, 'tensors': 0, 'histograms': 0})
    read.Reload()
    tags = read.Tags()
    got = read.Scalars('train/loss')
    assert [s.step for s in got] == list(range(1, STEPS + 1)), [s.step for s in got]
    for s in got:
        assert bits(s.value) == loss_bits(rows[s.step]), s
    check_groups(sorted(tags['scalars']))
    assert [s.step for s in read.Scalars('eval/loss')][:3] == [200, 400, 600]
    assert 'sample' in tags['tensors'], tags
    sample = read.Tensors('sample')[0].tensor_proto.string_val[0].decode()
    assert len(sample) > 50, sample
    check_hparams(read)
    histograms(text)


def check_groups(tags):
    """TensorBoard's page has a section per group, sorted by name: what people look at comes first."""
    groups = {}
    for tag in tags:
        group, _, name = tag.partition('/')
        groups.setdefault(group, []).append(name)
    assert list(groups) == ['eval', 'train', 'train_speed', 'use', 'wait'], list(groups)
    assert groups['eval'] == ['accuracy', 'loss'], groups
    assert groups['train'] == ['grad_norm', 'loss', 'lr'], groups
    assert groups['train_speed'] == ['items', 'items_per_s', 'step_s'], groups
    assert '0/cpu:0/busy' in groups['use'] and groups['wait'] == ['data_s', 'eval_s'], groups


def check_hparams(read):
    from tensorboard.plugins.hparams import plugin_data_pb2
    found = read.SummaryMetadata('_hparams_/session_start_info')
    data = plugin_data_pb2.HParamsPluginData.FromString(found.plugin_data.content)
    params = data.session_start_info.hparams
    assert params['lr'].number_value == 0.001, params
    assert params['model'].string_value.startswith('gpt2:'), params
    end = read.SummaryMetadata('_hparams_/session_end_info')
    data = plugin_data_pb2.HParamsPluginData.FromString(end.plugin_data.content)
    assert data.session_end_info.status == 1, data


def histograms(text):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    subprocess.run(choir('--steps', '4', '--batch-size', '12', '--model', MODEL, '--log',
                         'tensorboard:hist', '--log-histograms', '2', text), check=True, env=ENV,
                   stdout=subprocess.PIPE)
    read = EventAccumulator('hist', size_guidance={'histograms': 0, 'tensors': 0})
    read.Reload()
    names = read.Tags()['histograms']
    assert any(n.startswith('weights/') for n in names), read.Tags()
    assert any(n.startswith('gradients/') for n in names), read.Tags()
    for name in names:
        for h in read.Histograms(name):
            v = h.histogram_value
            assert h.step in (2, 4) and v.num > 0 and sum(v.bucket) == v.num, (name, v)
            assert v.min <= v.max


def mlflow(text):
    os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'
    from mlflow.tracking import MlflowClient
    rows = kill_and_go_on('mlflow:ml', text)
    client = MlflowClient(tracking_uri='file://' + os.path.abspath('ml'))
    check_mlflow(client, rows)
    serve_mlflow(text)


def check_mlflow(client, rows):
    experiment = client.get_experiment_by_name('choir')
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 1, runs
    run = runs[0]
    assert run.info.status == 'FINISHED', run.info
    assert run.data.params['lr'] == '0.001', run.data.params
    got = client.get_metric_history(run.info.run_id, 'loss')
    assert sorted(m.step for m in got) == sorted(rows), [m.step for m in got]
    for m in got:
        assert bits(m.value) == loss_bits(rows[m.step]), m
    assert client.get_metric_history(run.info.run_id, 'eval/loss')


class Server(http.server.BaseHTTPRequestHandler):
    """As much of MLflow's REST interface as a run needs, kept in memory."""
    metrics, calls = [], []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        call = self.path.removeprefix('/api/2.0/mlflow/')
        Server.calls.append((call, body))
        Server.metrics += body.get('metrics', [])
        reply = {'experiments/search': {}, 'experiments/create': {'experiment_id': '7'},
                 'runs/create': {'run': {'info': {'run_id': 'abc'}}}}.get(call, {})
        text = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def serve_mlflow(text):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f'mlflow:http://127.0.0.1:{server.server_port}'
    out = subprocess.run(choir('--steps', '6', '--batch-size', '12', '--model', MODEL, '--log', url,
                               text), check=True, env=ENV, capture_output=True, text=True)
    rows = steps_of(out.stdout.splitlines())
    server.shutdown()
    got = {m['step']: m['value'] for m in Server.metrics if m['key'] == 'loss'}
    assert got.keys() == rows.keys(), got
    assert all(bits(x) == loss_bits(rows[s]) for s, x in got.items())
    assert Server.calls[-1] == ('runs/update', Server.calls[-1][1])
    assert Server.calls[-1][1]['status'] == 'FINISHED'
    gone = subprocess.run(choir('--steps', '2', '--model', MODEL, '--log', url, text), env=ENV,
                          capture_output=True, text=True)
    server.server_close()
    gone = subprocess.run(choir('--steps', '2', '--model', MODEL, '--log', url, text), env=ENV,
                          capture_output=True, text=True)
    assert gone.returncode == 3 and 'does not answer' in gone.stderr, gone


def records_of(path):
    """The records of a .wandb file: LevelDB's log, with checksums, up to a part of a record."""
    data = open(path, 'rb').read()
    assert data[:7] == b':W&B\xe1\xbe\0', data[:7]
    at, record = 7, b''
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        crc, length, place = struct.unpack('<IHB', data[at:at + 7])
        part = data[at + 7:at + 7 + length]
        if len(part) < length:
            return
        assert crc == zlib.crc32(part, zlib.crc32(bytes([place]))), at
        record = part if place in (1, 2) else record + part
        if place in (1, 4):
            yield record
        at += 7 + length


def wandb(text):
    from wandb.proto import wandb_internal_pb2 as pb
    rows = kill_and_go_on('wandb:wb', text)
    runs = sorted(glob.glob('wb/offline-run-*/run-*.wandb'))
    assert len(runs) == 2 or len(set(map(os.path.dirname, runs))) == 1, runs
    losses, ids, exits = {}, set(), 0
    for path in runs:
        for data in records_of(path):
            record = pb.Record.FromString(data)
            kind = record.WhichOneof('record_type')
            if kind == 'run':
                ids.add(record.run.run_id)
                config = {i.key: json.loads(i.value_json) for i in record.run.config.update}
                assert config['lr'] == 0.001, config
            if kind == 'history':
                items = {i.key: json.loads(i.value_json) for i in record.history.item}
                assert items['_step'] == record.history.step.num
                if 'loss' in items:
                    losses[items['_step']] = items['loss']
            exits += kind == 'exit'
    assert len(ids) == 1 and exits == 1, (ids, exits)
    assert losses.keys() == rows.keys()
    assert all(bits(x) == loss_bits(rows[s]) for s, x in losses.items())
    for s, x in synced(text).items():
        assert bits(x) == loss_bits(rows[s]), s


class Wandb(http.server.BaseHTTPRequestHandler):
    """As much of W&B's server as `wandb sync` needs; keeps the lines of the history."""
    history = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        if self.headers.get('Content-Encoding') == 'gzip':
            body = zlib.decompress(body, 31)
        body = json.loads(body)
        lines = body.get('files', {}).get('wandb-history.jsonl', {}).get('content', [])
        Wandb.history += map(json.loads, lines)
        run = {'id': 'r', 'name': body.get('variables', {}).get('name'), 'displayName': 'r',
               'config': '{}', 'historyLineCount': 0,
               'project': {'id': 'p', 'name': 'choir', 'entity': {'id': 'e', 'name': 'me'}}}
        data = {'upsertBucket': {'bucket': run, 'inserted': True},
                'viewer': {'id': 'v', 'entity': 'me', 'username': 'me', 'flags': '{}',
                           'teams': {'edges': []}},
                'serverInfo': {'cliVersionInfo': {'max_cli_version': '99.0.0'}, 'features': []},
                'createRunFiles': {'runID': 'r', 'uploadHeaders': [], 'files': []}}
        reply = json.dumps({'data': data}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_PUT = do_GET = do_POST

    def log_message(self, *_):
        pass


def synced(text):
    """The losses of a short run as `wandb sync` sends them."""
    subprocess.run(choir('--steps', '9', '--batch-size', '12', '--microbatches', '2', '--model',
                         MODEL, '--log', 'wandb:short', text), check=True, env=ENV,
                   stdout=subprocess.PIPE)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Wandb)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = dict(os.environ, WANDB_BASE_URL=f'http://127.0.0.1:{server.server_port}',
               WANDB_API_KEY='0' * 40, WANDB_ERROR_REPORTING='false', HOME=os.getcwd())
    sync = subprocess.run([sys.executable, '-m', 'wandb', 'sync', '--yes',
                           *glob.glob('short/offline-run-*')], env=env, capture_output=True,
                          text=True, timeout=120)
    assert sync.returncode == 0, sync
    server.shutdown()
    losses = {row['_step']: row['loss'] for row in Wandb.history if 'loss' in row}
    assert sorted(losses) == list(range(1, 10)), Wandb.history
    return losses


def metrics(text):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    job = subprocess.Popen(choir('--steps', '1000000', '--batch-size', '12', '--model', MODEL, '--log',
                                 f'metrics::{port}', text), env=ENV, stdout=subprocess.PIPE,
                           text=True)
    rows = {}
    for line in job.stdout:
        rows.update(steps_of([line]))
        if len(rows) == 5:
            break
    page = urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=30)
    assert page.headers['Content-Type'].startswith('application/openmetrics-text')
    families = {f.name: f for f in parse(page.read().decode())}
    job.send_signal(signal.SIGINT)
    rest = job.stdout.read()
    job.wait()
    rows.update(steps_of(rest.splitlines()))
    step = int(families['choir_step'].samples[0].value)
    value = families['choir_loss'].samples[0].value
    assert step in rows, step
    assert bits(value) == loss_bits(rows[step]), (step, value)
    assert families['choir_device_bytes'].samples[0].labels == {'device': '0/cpu:0'}
    assert families['choir_run'].samples[0].labels['lr'] == '0.001'
    assert job.returncode == 130, job.returncode


def main():
    what = sys.argv[1]
    package = NEEDS[what]
    if importlib.util.find_spec(package) is None:
        skip(f'no {package} of PyPI')
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open('text', 'w') as f:
            for i in range(400):
                f.write(f'line {i * 7919 % 1000} of a text, number {i}\n')
        started = subprocess.run(choir('--steps', '1', '--model', MODEL, '--log',
                                       {'metrics': 'metrics::1'}.get(what, f'{what}:x'), 'text'),
                                 env=ENV, capture_output=True, text=True)
        if 'this build has no' in started.stderr:
            skip(started.stderr.strip())
        globals()[what](os.path.abspath('text'))
        os.chdir('/')
    print(f'{what}: all losses have the bits that --json prints')


main()
