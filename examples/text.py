"""Text: classify complaints to four shops by topic, with a bag of embeddings."""

import numpy as np
from torch import nn

import sofa_fl

TOPICS = {
    "delivery": "parcel courier late lost box street door arrived waiting driver",
    "payment": "card charged refund invoice price bank twice money account fee",
    "product": "broken screen battery colour size loud button crack cheap warm",
}
FILLER = "the my is was and a it has been again please why today still not"
LENGTH, PER_SHOP = 12, 150

rng = np.random.default_rng(0)
words = sorted({word for text in (*TOPICS.values(), FILLER) for word in text.split()})
number = {word: at + 1 for at, word in enumerate(words)}  # 0 is padding


def complaint(topic):
    own = rng.choice(TOPICS[topic].split(), 3)
    return " ".join(rng.permutation([*own, *rng.choice(FILLER.split(), rng.integers(3, 9))]))


def encode(text):
    numbers = [number.get(word, 0) for word in text.split()][:LENGTH]
    return numbers + [0] * (LENGTH - len(numbers))


class Bag(nn.Module):
    """The mean of the words' embeddings; inputs are floats, so they are converted to integers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(number) + 1, 16, padding_idx=0)
        self.out = nn.Linear(16, len(TOPICS))

    def forward(self, x):
        return self.out(self.embedding(x.long()).mean(dim=1))


shops, texts, topics = [], [], []
for shop in range(4):
    shares = rng.dirichlet([0.5] * len(TOPICS))  # what a shop's customers complain about
    for topic in rng.choice(list(TOPICS), PER_SHOP, p=shares):
        shops.append(shop)
        texts.append(encode(complaint(topic)))
        topics.append(topic)

arrays = sofa_fl.from_columns({"text": texts, "topic": topics}, x="text", y="topic")
data = sofa_fl.deal(arrays, by=shops)
network = Bag
local = sofa_fl.LocalConfig(batches=15, batch_size=20, learning_rate=2e-2)
config = sofa_fl.Config(rounds=4, local=local)
result = sofa_fl.run(config, data=data, network=network)
print(f"mean accuracy {result.summary['client']['mean']:.2f}, {result.run}")
