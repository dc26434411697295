"""Lines of text to compare tokenizers on: words in many scripts, emoji, control characters, numbers, code, spaces."""
from __future__ import annotations
import random

# script: ranges of code points that are assigned since Unicode 7 or earlier
SCRIPTS = {
  "latin": [(0x41, 0x5a), (0x61, 0x7a)], "latin_more": [(0xc0, 0xd6), (0xd8, 0xf6), (0x100, 0x17f), (0x1e00, 0x1eff)],
  "greek": [(0x391, 0x3a1), (0x3a3, 0x3ce)], "greek_more": [(0x1f00, 0x1f15), (0x1f20, 0x1f45)],
  "cyrillic": [(0x410, 0x44f), (0x400, 0x40f), (0x450, 0x45f)], "armenian": [(0x531, 0x556), (0x561, 0x587)],
  "hebrew": [(0x5d0, 0x5ea), (0x5b0, 0x5bd)], "arabic": [(0x621, 0x63a), (0x641, 0x64a), (0x64b, 0x652)],
  "syriac": [(0x712, 0x72f)], "thaana": [(0x780, 0x7a5)], "nko": [(0x7ca, 0x7ea)],
  "devanagari": [(0x905, 0x939), (0x93e, 0x94d)], "bengali": [(0x985, 0x98c), (0x9aa, 0x9b0), (0x9be, 0x9c4)],
  "gurmukhi": [(0xa13, 0xa28), (0xa3e, 0xa42)], "gujarati": [(0xa93, 0xaa8), (0xabe, 0xac5)],
  "oriya": [(0xb13, 0xb28)], "tamil": [(0xb85, 0xb8a), (0xbae, 0xbb9), (0xbbe, 0xbc2)],
  "telugu": [(0xc12, 0xc28), (0xc3e, 0xc44)], "kannada": [(0xc92, 0xca8)], "malayalam": [(0xd12, 0xd28)],
  "sinhala": [(0xd85, 0xd96), (0xd9a, 0xdb1)], "thai": [(0xe01, 0xe3a), (0xe40, 0xe4e)],
  "lao": [(0xe94, 0xe97), (0xe99, 0xe9f)], "tibetan": [(0xf40, 0xf47), (0xf71, 0xf7e)], "myanmar": [(0x1000, 0x1021)],
  "georgian": [(0x10d0, 0x10f0)], "hangul": [(0xac00, 0xd7a3)], "jamo": [(0x1100, 0x1112), (0x1161, 0x1175)],
  "ethiopic": [(0x1200, 0x1248)], "cherokee": [(0x13a0, 0x13f4)], "canadian": [(0x1401, 0x166c)],
  "ogham": [(0x1681, 0x169a)], "runic": [(0x16a0, 0x16ea)], "khmer": [(0x1780, 0x17b3), (0x17b6, 0x17c5)],
  "mongolian": [(0x1820, 0x1877)], "hiragana": [(0x3041, 0x3096)], "katakana": [(0x30a1, 0x30fa)],
  "bopomofo": [(0x3105, 0x312d)], "han": [(0x4e00, 0x9fa5)], "han_more": [(0x3400, 0x4db5), (0x20000, 0x2a6d6)],
  "compatibility": [(0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xff21, 0xff5a)], "yi": [(0xa000, 0xa48c)],
  "gothic": [(0x10330, 0x1034a)], "deseret": [(0x10400, 0x1044f)], "math": [(0x1d400, 0x1d454)],
  "linear_b": [(0x10000, 0x1000b)], "cuneiform": [(0x12000, 0x1236e)], "hieroglyphs": [(0x13000, 0x1342e)]}
DIGITS = [(0x30, 0x39)] * 6 + [(0x660, 0x669), (0x966, 0x96f), (0xe50, 0xe59), (0xff10, 0xff19), (0x2160, 0x2188),
                               (0x2460, 0x249b), (0xb2, 0xb3), (0xbc, 0xbe)]
MARKS = [(0x300, 0x36f), (0x20d0, 0x20dc), (0xfe00, 0xfe0f)]
SYMBOLS = [(0x21, 0x2f), (0x3a, 0x40), (0x5b, 0x60), (0x7b, 0x7e)] * 4 + [
  (0xa1, 0xbf), (0x2010, 0x2027), (0x2030, 0x205e), (0x20a0, 0x20b9), (0x2190, 0x21ff), (0x2200, 0x22ff),
  (0x2500, 0x257f), (0x3001, 0x3003), (0x3008, 0x3011), (0xff01, 0xff0f), (0xfe30, 0xfe44)]
EMOJI = ["😀", "🤖", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "🏳️‍🌈", "❤️", "1️⃣", "🧑🏿‍🚀", "🦄", "☃", "⚡️", "🈶", "㊙️"]
CONTROLS = "\x00\x01\x07\x08\x0b\x0c\x1b\x1f\x7f\x80\x85\x9f\xad\u200b\u200d\u200e\u202e\u2060\ufeff\ufffd\ufffe\ue000"
SPACES = [" "] * 12 + ["  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u1680", "\u180e", "\u2003",
                       "\u2028",
                       "\u202f", "\u3000", "\t\t", "        "]
FRAGMENTS = ["don't", "I'LL", "we've", "it'ſ", "they're", "'s", "x'd", "<|im_start|>", "<s>", "[CLS]", "<unk>", "</s>",
             "<|endoftext|>", "▁", "▁▁the", "##ing", "<0x41>", "Ġthe", "https://a.b/c?d=e&f=%20",
             "def f(x): return x**2",
             "3.14159", "1,000,000", "2024-02-29", "C++20", "e\u0301\u0327", "İstanbul", "ΌΣΟΣ", "ﬁnance", "½", "x²",
             "①", "™",
             "...", "!!!", "==", "\\n", "a_b", "camelCase", "ALLCAPS", "MixedCASEWord", "ｆｕｌｌ", "한국어", "日本語テキスト",
             "中文，标点。"]


def pick(r: random.Random, ranges) -> str: return chr(r.randint(*r.choice(ranges)))

def word(r: random.Random) -> str:
  kind = r.random()
  if kind < 0.12: return r.choice(FRAGMENTS)
  if kind < 0.17: return r.choice(EMOJI) * r.choice((1, 1, 1, 2, 5))
  if kind < 0.24: return "".join(pick(r, SYMBOLS) for _ in range(r.randint(1, 4)))
  if kind < 0.31: return "".join(pick(r, DIGITS) for _ in range(r.randint(1, 9)))
  if kind < 0.33: return "".join(r.choice(CONTROLS) for _ in range(r.randint(1, 3)))
  ranges = SCRIPTS[r.choice(list(SCRIPTS)) if kind < 0.7 else "latin"]
  text = "".join(pick(r, ranges) for _ in range(r.choice((1, 2, 3, 4, 5, 6, 8, 12, 40) if r.random() < 0.99 else (300,
    ))))
  if r.random() < 0.06: text += pick(r, MARKS)
  return text.lower() if kind > 0.8 else text.capitalize() if kind > 0.75 else text

def lines(count: int, seed: int = 16) -> list[str]:
  r = random.Random(seed)
  return ["".join(word(r) + (r.choice(SPACES) if r.random() < 0.8 else "") for _ in range(r.choice((0, 1, 2, 5, 9,
    15))))
          for _ in range(count)]

def broken(count: int, seed: int = 17) -> list[bytes]:
  """Lines with bytes that are not UTF-8: cut off, inserted, overlong and surrogate sequences."""
  r, out = random.Random(seed), []
  for text in lines(count, seed):
    data = bytearray(text.encode())
    for _ in range(r.randint(1, 4)):
      at = r.randint(0, len(data))
      data[at:at + r.randint(0, 2)] = r.choice((b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80\x80",
                                                b"\xc0\xaf",
                                                b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\xaf", b""))
    out.append(bytes(data))
  return out
