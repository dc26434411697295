"""Language models."""
from .._core import (BertModel, ChatTemplate, JsonConstraint, JsonSchema, ReplyParser, StreamDecoder, TokenBytes,
                     Tokenizer)
from .tokenizer import SimpleTokenizer

__all__ = ["BertModel", "ChatTemplate", "JsonConstraint", "JsonSchema", "ReplyParser", "SimpleTokenizer",
           "StreamDecoder", "TokenBytes", "Tokenizer"]
