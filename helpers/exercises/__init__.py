"""The exercises' judges: one module nbNN.py a notebook, imported by helpers.checks at its first check."""
