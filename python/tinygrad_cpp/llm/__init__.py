"""Language models."""
from .._core import (AdaptedModel, BertModel, ChatTemplate, JsonConstraint, JsonSchema, ReplyParser, StreamDecoder,
                     TokenBytes, Tokenizer)
from .tokenizer import SimpleTokenizer

__all__ = ["AdaptedModel", "BertModel", "ChatTemplate", "JsonConstraint", "JsonSchema", "ReplyParser",
           "SimpleTokenizer", "StreamDecoder", "TokenBytes", "Tokenizer"]
