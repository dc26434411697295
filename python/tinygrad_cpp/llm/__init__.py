"""Language models."""
from .._core import AdaptedModel, BertModel, StreamDecoder, Tokenizer
from .tokenizer import SimpleTokenizer

__all__ = ["AdaptedModel", "BertModel", "SimpleTokenizer", "StreamDecoder", "Tokenizer"]
