"""Two networks with an optimizer each, as PyTorch's users write them, and the same loops here: losses and
weights of twenty steps of GANs, of an actor with its critic, and of an encoder and a decoder with one loss."""
from check import LOSSES, C, agree, case, copy_weights, main, refuses  # first: it may skip without PyTorch
import choir
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, STEPS = 16, 20


class Pair:
    """Two networks in both libraries, and their optimizers."""

    def __init__(self, run, a, b, lr=(0.02, 0.02)):
        self.theirs = [self.network(*a), self.network(*b)]
        self.ours = [self.our_network(run, *a), self.our_network(run, *b)]
        for mine, other in zip(self.ours, self.theirs):
            copy_weights(mine, other)
        self.optim = [C.adam(run, m, choir.options(C.adam_defaults, lr=r)) for m, r in zip(self.ours, lr)]
        self.their_optim = [torch.optim.Adam(m.parameters(), lr=r) for m, r in zip(self.theirs, lr)]

    @staticmethod
    def network(inputs, width, outputs):
        return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))

    @staticmethod
    def our_network(run, inputs, width, outputs):
        parts = [C.nn_linear(run, inputs, width), C.nn_tanh(run), C.nn_linear(run, width, outputs)]
        return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], 3)

    def compare(self):
        for name, mine, other in zip("ab", self.ours, self.theirs):
            for key, t in mine.tensors().items():
                agree("weights %s.%s" % (name, key), t, other.state_dict()[key], LOSSES)


def bce(scores, label):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, label))


def our_bce(step, scores, label):
    return C.bce_with_logits_loss(scores, step.tensor(torch.full((ROWS, 1), label).numpy()), None, 1)


def their_gan_step(p, real, noise, generator_first):
    """The loop of PyTorch's DCGAN tutorial, or the generator first, as many repositories have it."""
    (g, d), (opt_g, opt_d) = p.theirs, p.their_optim

    def discriminator():
        opt_d.zero_grad()
        loss = bce(d(real), 1.0) + bce(d(g(noise).detach()), 0.0)
        loss.backward()
        opt_d.step()
        return loss

    def generator():
        opt_g.zero_grad()
        loss = bce(d(g(noise)), 1.0)
        loss.backward()
        opt_g.step()
        return loss
    return [f() for f in ([generator, discriminator] if generator_first else [discriminator, generator])]


def our_gan_step(p, step, real, noise, generator_first, cure):
    (g, d), (opt_g, opt_d) = p.ours, p.optim
    real, noise = step.tensor(real.numpy()), step.tensor(noise.numpy())

    def discriminator():
        if cure == "zero_grad":
            C.optim_zero(opt_d)
        loss = C.add(our_bce(step, d(real), 1.0), our_bce(step, d(C.keep(step, g(noise))), 0.0))
        C.backward(loss)
        C.optim_step(opt_d)
        return loss

    def generator():
        if cure == "zero_grad":
            C.optim_zero(opt_g)
        C.module_freeze(d, cure == "freeze")
        loss = our_bce(step, d(g(noise)), 1.0)
        C.backward(loss)
        C.module_freeze(d, False)
        C.optim_step(opt_g)
        return loss
    return [f() for f in ([generator, discriminator] if generator_first else [discriminator, generator])]


def train_gan(generator_first, cure):
    torch.manual_seed(3)
    with choir.Run() as run:
        p = Pair(run, (4, 12, 2), (2, 12, 1))
        for _ in range(STEPS):
            real, noise = torch.randn(ROWS, 2) + 2, torch.randn(ROWS, 4)
            theirs = their_gan_step(p, real, noise, generator_first)
            with run.step() as step:
                for i, mine in enumerate(our_gan_step(p, step, real, noise, generator_first, cure)):
                    agree("loss %d" % i, mine, theirs[i], LOSSES)
        p.compare()


@case
def gan():
    for generator_first in (False, True):
        for cure in ("zero_grad", "freeze"):
            train_gan(generator_first, cure)


@case
def gan_without_a_cure():
    refuses("a discriminator that keeps the generator's leaf", ["choir_optim_zero", "choir_module_freeze"],
            lambda: train_gan(False, None))


@case
def actor_and_critic():
    """As DDPG has them: the critic learns a target, the actor what the critic likes."""
    for cure in ("zero_grad", "freeze"):
        with choir.Run() as run:
            p = Pair(run, (3, 10, 2), (5, 10, 1), lr=(0.01, 0.03))
            (actor, critic), (opt_a, opt_c) = p.theirs, p.their_optim
            (my_actor, my_critic), (my_opt_a, my_opt_c) = p.ours, p.optim
            for _ in range(STEPS):
                s, a, target = torch.randn(ROWS, 3), torch.randn(ROWS, 2), torch.randn(ROWS, 1)
                opt_c.zero_grad()
                q = F.mse_loss(critic(torch.cat([s, a], 1)), target)
                q.backward()
                opt_c.step()
                opt_a.zero_grad()
                value = -critic(torch.cat([s, actor(s)], 1)).mean()
                value.backward()
                opt_a.step()
                with run.step() as step:
                    s, a, target = (step.tensor(t.numpy()) for t in (s, a, target))
                    if cure == "zero_grad":
                        C.optim_zero(my_opt_c)
                    mine = C.mse_loss(my_critic(C.cat([s, a], 2, 1)), target)
                    agree("critic's loss", mine, q, LOSSES)
                    C.backward(mine)
                    C.optim_step(my_opt_c)
                    C.module_freeze(my_critic, cure == "freeze")
                    mine = C.scale(C.mean(my_critic(C.cat([s, my_actor(s)], 2, 1))), -1.0)
                    agree("actor's loss", mine, value, LOSSES)
                    C.backward(mine)
                    C.module_freeze(my_critic, False)
                    C.optim_step(my_opt_a)
            p.compare()


@case
def one_loss():
    """Encoder and decoder: one backward, then both steps."""
    with choir.Run() as run:
        p = Pair(run, (6, 8, 2), (2, 8, 6), lr=(0.01, 0.03))
        for _ in range(STEPS):
            x = torch.randn(ROWS, 6)
            for o in p.their_optim:
                o.zero_grad()
            expected = F.mse_loss(p.theirs[1](p.theirs[0](x)), x)
            expected.backward()
            for o in p.their_optim:
                o.step()
            with run.step() as step:
                x = step.tensor(x.numpy())
                loss = C.mse_loss(p.ours[1](p.ours[0](x)), x)
                agree("loss", loss, expected, LOSSES)
                C.backward(loss)
                for o in p.optim:
                    C.optim_step(o)
        p.compare()


if __name__ == "__main__":
    main()
