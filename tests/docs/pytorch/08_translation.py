# A translation transformer that reverses sequences of two to five digits.
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BEGIN, END, TOKENS, LONGEST = 0, 11, 12, 13, 5

class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 32, padding_idx=PAD)
        self.position = nn.Parameter(torch.randn(LONGEST + 1, 32) * 0.1)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, TOKENS)

    def forward(self, source, target):  # [B, S], [B, T] -> [B, T, TOKENS]
        padding = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y = self.transformer(self.place(source), self.place(target), tgt_mask=causal,
                             tgt_is_causal=True, src_key_padding_mask=padding,
                             memory_key_padding_mask=padding)
        return self.head(y)

    def place(self, tokens):
        return self.embed(tokens) + self.position[:tokens.shape[1]]

def batch(size):
    length = torch.randint(2, LONGEST + 1, (size, 1))
    place = torch.arange(LONGEST + 1)
    digits = torch.randint(1, 11, (size, LONGEST + 1))
    source = torch.where(place < length, digits, PAD)
    reverse = source.gather(1, (length - 1 - place).clamp(min=0))
    target = torch.where(place < length, reverse, torch.where(place == length, END, PAD))
    return source[:, :LONGEST], target

def translate(net, source):
    target = torch.full((len(source), 1), BEGIN)
    for _ in range(LONGEST + 1):
        token = net(source, target)[:, -1].argmax(-1, keepdim=True)
        target = torch.cat([target, token], 1)
    return target[:, 1:]

torch.manual_seed(0)
net = Translator()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)

@torch.compile
def train_step(source, target):
    begin = torch.full((len(source), 1), BEGIN)
    logits = net(source, torch.cat([begin, target[:, :-1]], 1))
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

for step in range(501):
    loss = train_step(*batch(64))
    if step % 100 == 0:
        print(f"step {step:3}  loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    source, target = batch(200)
    right = ((translate(net, source) == target) | (target == PAD)).all(1)
print(f"right {right.float().mean().item():.3f}")
assert right.float().mean().item() > 0.9
