"""The library's tables of algebraic rules. They add up with tables of one's own: `graph_rewrite(u, symbolic +
PatternMatcher([...]))`."""
from .ops import PatternMatcher

symbolic_simple = PatternMatcher._library("symbolic_simple")      # identities and literals
symbolic = PatternMatcher._library("symbolic")                    # + index arithmetic, comparisons, bounds
sym = PatternMatcher._library("sym")                              # + what holds in whole kernels
pm_simplify_valid = PatternMatcher._library("pm_simplify_valid")  # gates and the indices they guard
commutative = PatternMatcher._library("commutative")              # the order of operands
