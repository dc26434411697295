"""Language models."""
from .._core import BertModel, StreamDecoder, Tokenizer
from .tokenizer import SimpleTokenizer

__all__ = ["BertModel", "SimpleTokenizer", "StreamDecoder", "Tokenizer"]
