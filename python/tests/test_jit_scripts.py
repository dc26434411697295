"""Random scripts around captured functions: 200 here, more in `ninja nightly_jit`."""
import pytest

import jit_scripts


@pytest.mark.parametrize("first", range(0, 180, 20))
def test_captured_scripts_give_what_uncaptured_ones_give(first):
  wrong = [w for seed in range(first, first + 20) if (w := jit_scripts.check(seed, held=0.6))]
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("first", range(1000, 1020, 4))
def test_captured_scripts_on_threads_that_share_a_table(first):
  wrong = jit_scripts.check_threads(list(range(first, first + 4)), held=0.6)
  assert not wrong, "\n".join(wrong)
