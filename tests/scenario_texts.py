"""Scenarios that many tests write down, as they are or with something wrong in them."""

GOOD = """\
seed: 3
data: {kind: gaussian, samples: 50, features: 5}
network:
  kind: residual
  depth: 10
  scale: 0.5
flow: {rtol: 1e-5, t1: inf}
descent: {learning_rates: [0.005, 2e-2], steps: 4e3}
"""
TABLE = """\
data: {kind: file, path: table.csv, target: y, features: [a, b]}
network: {kind: mlp, depth: 2, scale: 0.1}
"""
TINY = """\
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
"""
