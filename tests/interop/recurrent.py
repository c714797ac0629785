"""Recurrent layers: every cell, deep, in both directions, either order, with and without biases and
initial states."""
from check import C, case, layer, main  # first: it skips without PyTorch
import choir
import torch.nn as nn

T, B, IN, HIDDEN = 6, 3, 7, 20


class LstmFrom(nn.LSTM):
    """An LSTM whose initial states are inputs like the others."""

    def forward(self, x, h=None, c=None):
        return super().forward(x, None if h is None else (h, c))[0]


CELLS = {
    "lstm": (C.nn_lstm, LstmFrom, {}),
    "gru": (C.nn_gru, nn.GRU, {}),
    "rnn": (C.nn_rnn, nn.RNN, {}),
    "relu": (C.nn_rnn, nn.RNN, dict(nonlinearity="relu")),
}


def compare(cell, layers=1, bidirectional=False, batch_first=False, bias=True, states=False):
    make, theirs, more = CELLS[cell]
    opts = choir.options(C.recurrent_defaults, layers=layers, bidirectional=bidirectional,
                         batch_first=batch_first, bias=bias, relu=cell == "relu")
    state = (layers * (2 if bidirectional else 1), B, HIDDEN)
    inputs = [(B, T, IN) if batch_first else (T, B, IN)]
    inputs += [state] * (states and (2 if cell == "lstm" else 1))
    layer(lambda run: run.module(make, IN, HIDDEN, opts),
          theirs(IN, HIDDEN, num_layers=layers, bidirectional=bidirectional,
                 batch_first=batch_first, bias=bias, **more), *inputs)


def each(cell):
    compare(cell)
    compare(cell, layers=3, states=True)
    compare(cell, layers=2, bidirectional=True)
    compare(cell, bidirectional=True, batch_first=True, states=True)
    compare(cell, batch_first=True, bias=False)


@case
def lstm():
    each("lstm")


@case
def gru():
    each("gru")


@case
def rnn():
    each("rnn")
    each("relu")


if __name__ == "__main__":
    main()
