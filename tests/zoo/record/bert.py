"""Records BERT of transformers: the heads of pretraining and of question answering."""
import torch
from transformers import BertConfig, BertForPreTraining, BertForQuestionAnswering
from pattern import give_weights, gradients, numbers, record, record_names


def config(**sizes):
  return BertConfig(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, attn_implementation="eager", **sizes)


def pretraining_name(name: str) -> str | None:
  """Returns the name in C++; words' embeddings and their bias stand twice in PyTorch."""
  if name.startswith("cls.predictions.decoder.") or name.endswith("position_ids"): return None
  return name.replace("bert.pooler.", "cls.pooler.")


def question_name(name: str) -> str | None:
  return None if name.endswith("position_ids") else name


SMALL = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=16)
LARGE = dict(vocab_size=30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
ids, types = numbers("ids", 60, 3, 11), numbers("types", 2, 3, 11)
mask = (torch.arange(11) < torch.tensor([11, 7, 4]).unsqueeze(1)).long()

model = BertForPreTraining(config(**SMALL)).eval()
names = give_weights(model, pretraining_name)
masked, words = numbers("masked", 4, 3, 3), numbers("words", 60, 3, 3)
follows = torch.tensor([0, 1, 1])
out = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
chosen = out.prediction_logits.gather(1, masked.unsqueeze(2).expand(-1, -1, 60))
counts = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
loss = (torch.nn.functional.cross_entropy(chosen.flatten(0, 1), torch.where(counts > 0, words, -100).flatten()) +
        torch.nn.functional.cross_entropy(out.seq_relationship_logits, follows))
result = {"words": chosen, "next_sentence": out.seq_relationship_logits, "loss": loss.reshape(1),
          "hidden": model.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state}
result.update(gradients(model, torch.cat([chosen.flatten(), out.seq_relationship_logits.flatten()]), names))
some = ("words", "next_sentence", "loss", "hidden", "gradient.bert.embeddings.word_embeddings.weight",
        "gradient.bert.embeddings.position_embeddings.weight",
        "gradient.bert.encoder.layer.0.attention.self.key.weight",
        "gradient.bert.encoder.layer.1.output.LayerNorm.weight", "gradient.cls.predictions.bias",
        "gradient.cls.pooler.dense.weight")
record("bert_pretraining", result, lambda key: key in some)

model = BertForQuestionAnswering(config(**SMALL)).eval()
names = give_weights(model, question_name)
first, last = torch.tensor([3, 0, 1]), torch.tensor([9, 6, 1])
out = model(input_ids=ids, attention_mask=mask, token_type_ids=types, start_positions=first, end_positions=last)
result = {"start": out.start_logits, "end": out.end_logits, "loss": out.loss.reshape(1)}
result.update(gradients(model, torch.cat([out.start_logits, out.end_logits]), names))
some = ("start", "end", "loss", "gradient.qa_outputs.bias", "gradient.bert.encoder.layer.0.intermediate.dense.weight",
        "gradient.bert.embeddings.token_type_embeddings.weight")
record("bert_question_answering", result, lambda key: key in some)

with torch.device("meta"):
  record_names("bert_pretraining", BertForPreTraining(config(**LARGE)), pretraining_name)
  record_names("bert_question_answering", BertForQuestionAnswering(config(**LARGE)), question_name)
