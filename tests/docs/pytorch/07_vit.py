# A vision transformer that tells four directions of stripes apart.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.position = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", norm_first=True,
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(32))
        self.head = nn.Linear(32, 4)

    def forward(self, images):  # [B, 1, 16, 16] -> [B, 4]
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), 1, 32), x], 1)
        return self.head(self.encoder(x + self.position)[:, 0])

def batch(size):
    labels = torch.randint(0, 4, (size,))
    angle = labels.reshape(-1, 1, 1, 1) * (math.pi / 4)
    phase = torch.rand(size, 1, 1, 1) * (2 * math.pi)
    x, y = torch.arange(16.0), torch.arange(16.0).reshape(16, 1)
    stripes = torch.sin(x * torch.cos(angle) + y * torch.sin(angle) + phase)
    return stripes + 0.5 * torch.randn(size, 1, 16, 16), labels

torch.manual_seed(0)
net = Vit()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

@torch.compile
def train_step(images, labels):
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

for step in range(121):
    loss = train_step(*batch(64))
    if step % 40 == 0:
        print(f"step {step:3}  loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    images, labels = batch(500)
    accuracy = (net(images).argmax(1) == labels).float().mean().item()
print(f"accuracy {accuracy:.3f}")
assert accuracy > 0.9
