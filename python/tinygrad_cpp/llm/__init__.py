"""Language models."""
from .._core import StreamDecoder, Tokenizer
from .tokenizer import SimpleTokenizer

__all__ = ["SimpleTokenizer", "StreamDecoder", "Tokenizer"]
