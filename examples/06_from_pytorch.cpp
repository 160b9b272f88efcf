// Tutorial 6 shows lines of PyTorch as comments, and below each its counterpart in weft.
#include <filesystem>
#include <string>

#include <weft/weft.h>

using namespace weft;

// class Block(nn.Module):
//     def __init__(self, width):
//         super().__init__()
//         self.norm = nn.LayerNorm(width)
//         self.linear = nn.Linear(width, width)
//         self.dropout = nn.Dropout(0.1)
//     def forward(self, x):
//         return x + self.dropout(F.gelu(self.linear(self.norm(x))))
struct Block : nn::Module {
  Block(nn::Module& parent, std::string name, int64_t width)
      : Module(parent, std::move(name)),
        norm(*this, "norm", width),
        linear(*this, "linear", width, width),
        dropout(*this, "dropout", 0.1) {}
  nn::LayerNorm norm;
  nn::Linear linear;
  nn::Dropout dropout;
  Tensor operator()(const Tensor& x) const { return x + dropout(gelu(linear(norm(x)))); }
};

struct Net : nn::Module {
  // self.blocks = nn.ModuleList(Block(8) for _ in range(2))
  nn::ModuleList<Block> blocks{*this, "blocks"};
  nn::Linear head{*this, "head", 8, 3};
  Net() {
    for (int i = 0; i < 2; ++i) blocks.add(8);
  }
  Tensor operator()(Tensor x) const {
    // for block in self.blocks: x = block(x)
    for (const Block& block : blocks) x = block(x);
    return head(x);
  }
};

// Sentences reads sentences of different lengths, filled up with token 0.
struct Sentences : nn::Module {
  // self.embed = nn.Embedding(10, 8, padding_idx=0)
  nn::Embedding embed{*this, "embed", 10, 8, {.padding_idx = 0}};
  // self.encoder = nn.TransformerEncoder(
  //     nn.TransformerEncoderLayer(8, 2, norm_first=True, batch_first=True), 2)
  nn::TransformerEncoder encoder{*this, "encoder", 2, 8, 2, {.norm_first = true}};
  // self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
  nn::MultiheadAttention attention{*this, "attention", 8, 2};
  // self.lstm = nn.LSTM(8, 16, batch_first=True, bidirectional=True)
  nn::LSTM lstm{*this, "lstm", 8, 16, {.bidirectional = true}};
  Tensor operator()(const Tensor& tokens) const {
    // padding = tokens == 0; memory = self.encoder(x, src_key_padding_mask=padding)
    Tensor x = embed(tokens), padding = tokens == 0;
    Tensor memory = encoder(x, {.key_padding_mask = padding});
    // y = self.attention(x, memory, memory, key_padding_mask=padding)[0]
    Tensor y = attention(x, memory, memory, {.key_padding_mask = padding});
    // packed = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
    // _, (h, c) = self.lstm(packed)
    auto [all, h, c] = lstm.run(y, {.lengths = sum(tokens != 0, 1)});
    return h;
  }
};

int main() try {
  // torch.manual_seed(0); x = torch.rand(4, 6); n = torch.randn(2, 3)
  manual_seed(0);
  Tensor x = rand({4, 6}), n = randn({2, 3});
  // x[torch.randperm(4)]; F.dropout(x, 0.5, self.training)
  Tensor shuffled = x[randperm(4)], thinned = dropout(x, 0.5);
  // a = torch.arange(24).reshape(2, 3, 4)
  Tensor a = arange(24).reshape({2, 3, 4});
  // a[0, 1:, ::2]; a[..., -1]; a[:, None]
  Tensor part = a[{0, range(1, to_end), range(0, to_end, 2)}];
  Tensor last = a[{ellipsis, -1}], raised = a[{range(), newaxis}];
  print("{} {} {}", part, last, raised.shape());
  // order = torch.tensor([2, 0, 1, 3]); x[order]; x[torch.arange(4), order]
  Tensor order = tensor({2, 0, 1, 3});
  Tensor ordered = x[order], picked = x[{arange(4), order}];
  // for row in x: print(row.sum().item())
  for (Tensor row : x) print("{:.1f}", row.sum().item());
  // x += 1; x *= 2: x names a new tensor here, as tensors are immutable
  x += 1;
  x *= 2;
  // x.sum(dim=1, keepdim=True); x.var(0); x.norm(); x.max(1).values; x.argmax(1)
  Tensor sums = x.sum(1, true), spread = x.variance(0), length = x.norm();
  Tensor most = x.max(1), where_most = x.argmax(1);
  // torch.where(x > 3, x, 0); x.clamp(2, 3); x.tril()
  Tensor chosen = where(x > 3, x, 0), bounded = clamp(x, 2, 3), lower = tril(x);
  // x @ x.T; torch.einsum("ij,kj->ik", x, x); torch.cat([x, x], 1); x.repeat(2, 1)
  Tensor product = matmul(x, x.transpose()), same = einsum("ij,kj->ik", {x, x});
  Tensor wide = concat({x, x}, 1), tiled = tile(x, {2, 1});
  // values, indices = x.topk(2); x.sort(descending=True).values; x.cumsum(1)
  auto [values, indices] = topk(x, 2);
  Tensor sorted = sort(x, -1, true), running = cumsum(x, 1);
  // x.gather(1, indices); x.scatter(1, indices, 0.0)
  Tensor taken = take_along_axis(x, indices, 1), put = put_along_axis(x, indices, 0.0, 1);
  // F.interpolate(image, size=(4, 4), mode="bilinear"); F.pad(image, (1, 1, 1, 1), mode="reflect")
  Tensor image = rand({1, 3, 2, 2});
  Tensor larger = interpolate(image, {.size = {4, 4}, .mode = Interpolation::linear});
  Tensor framed = reflect_pad(image, {0, 0, 1, 1}, {0, 0, 1, 1});
  // x.half(); x.long(); x.item(); x.tolist()
  Tensor narrow = x.cast(DType::f16), whole = x.cast(DType::i64);
  print("{:.0f} {}", abs(product - same).max().item(), whole.to_vector<int64_t>().size());

  // w = torch.tensor([1., 2.], requires_grad=True); g = torch.autograd.grad((w ** 2).sum(), w)[0]
  Tensor w = tensor({1.0, 2.0});
  print(grad(sum(pow(w, 2)), w));
  // class Through(torch.autograd.Function): forward rounds, backward returns the gradient as it is
  Tensor through = custom_gradient(round(w), {w}, [](Tensor dy) { return std::vector{dy}; });
  print(grad(sum(through), w));
  // start = torch.tensor(1); a[:, start:start + 2]; a[:, start:start + 2] = b
  Tensor start = tensor({1}, {}), b = zeros({2, 2, 4}, DType::i64);
  print("{} {}", slice_at(a, 1, start, 2), update_at(a, 1, start, b));

  // net = Net(); optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
  Net net;
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  // @torch.compile
  // def train_step(inputs, labels):
  //     optimizer.zero_grad()
  //     loss = F.cross_entropy(net(inputs), labels, label_smoothing=0.1)
  //     loss.backward(); optimizer.step()
  //     return loss
  auto train_step = compile([&](Tensor inputs, Tensor labels) {
    Tensor loss = cross_entropy(net(inputs), labels, {.label_smoothing = 0.1});
    optimizer.step(grad(loss, net.parameters()));
    return loss;
  });
  // torch.utils.checkpoint.checkpoint(block, x) in forward: here a memory limit, which the plan
  // meets by recomputing what costs least
  auto small_step = compile([&](Tensor inputs) { return grad(sum(net(inputs)), net.parameters()); },
                            {.memory = 64_MiB});
  // for block in self.blocks: x = checkpoint(block, x)
  auto named_step = compile([&](Tensor inputs) { return grad(sum(net(inputs)), net.parameters()); },
                            {.rematerialize = {"blocks.*"}});
  // net.eval(); with torch.no_grad(): net(inputs).argmax(-1)
  auto predict =
      compile([&](Tensor inputs) { return net(inputs).argmax(-1); }, {.mode = Mode::eval});
  Tensor inputs = randn({16, 8}), labels = randint(0, 3, {16});
  small_step(inputs);
  named_step(inputs);
  // torch.cuda.max_memory_allocated(), after a run; here before it, and for a GPU that is elsewhere
  PlanSummary plan = train_step.plan(inputs, labels);
  PlanSummary there = train_step.plan_on("h100", inputs, labels);
  print("{} bytes of arena; {} kernels on {}", plan.arena_bytes, there.launches, there.device);
  // torch.cuda.device_count(); torch.cuda.is_available(); get_device_properties(0).total_memory
  print("{} devices that compute; a CUDA GPU: {}; an H100 has {} GiB", devices().size(),
        Device("cuda").is_present(), Device("h100").memory_bytes() >> 30);
  {
    // with torch.device("cuda"): (x @ x.T).sum().item()
    DeviceScope on("cpu");
    print("{:.1f}", matmul(x, x.transpose()).sum().item());
  }
  const double before = train_step(inputs, labels).item();
  for (int step = 0; step < 50; ++step) train_step(inputs, labels);
  print("loss {:.2f}, then {:.2f}; {:.0f} of 16 right", before, train_step(inputs, labels).item(),
        (predict(inputs) == labels).sum().item());

  print(Sentences()(tensor({{3, 1, 4}, {1, 5, 0}})).shape());

  // save_file(net.state_dict(), "net.safetensors"); net.load_state_dict(load_file(...))
  const std::string file = std::filesystem::temp_directory_path() / "from_pytorch.safetensors";
  io::save(net, file);
  io::load(net, file);
  // found = net.load_state_dict(renamed_by_hand, strict=False); found.missing_keys
  io::Loaded found = io::load(net, file, {.ignore = {"head.*"}, .strict = false});
  print("{} loaded, {} missing", found.loaded.size(), found.missing.size());
  // for parameter in net.blocks.parameters(): parameter.requires_grad_(False)
  net.blocks.freeze();
  print("{} of {} train", net.parameters().size(), net.named_parameters().size());
  // a folder of Hugging Face's, in shards or whole: from_pretrained(folder), of any net of modules
  const std::string folder = file + ".folder";
  std::filesystem::remove_all(folder);
  io::save_folder(net, folder);
  io::load(net, io::weight_files(folder), {.map = true});
  std::filesystem::remove_all(folder);
  std::filesystem::remove(file);
  return 0;
} catch (...) {
  return weft::report_failure();
}
