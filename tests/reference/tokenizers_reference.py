"""Tokenizers of each kind, made and run by the `tokenizers` package, for tests/data/tokenizer_*.

    python tests/reference/tokenizers_reference.py            writes tests/reference/tokenizers/
    python tests/reference/tokenizers_reference.py --live DIR writes many tokenizers with the ids of
                                                              5,000 lines to DIR
    python tests/reference/tokenizers_reference.py --speed FILE TEXT
                                                              prints the megabytes a second at which
                                                              the tokenizer FILE encodes TEXT
    python tests/reference/tokenizers_reference.py --speed-files DIR TEXT
                                                              writes tokenizers to measure, trained on
                                                              TEXT: DIR/gpt2.json, llama2.json, ...

Needs tokenizers 0.23 (pip install tokenizers); with sentencepiece beside it, --live also reads the
character map of SentencePiece's nmt_nfkc. All text is made here, from a fixed seed.
"""
# This is one file because all of its commands draw from the same tokenizers and lines.

import base64
import io
import json
import os
import pathlib
import random
import struct
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

# ---- text ----------------------------------------------------------------------------------------

PHRASES = {
    "Latin": "The quick weaver mends her loom; it's late, we'll stop at 17:45 and she'd agree.",
    "Latin extended": "Žluťoučký kůň přišel, größer als ein Ölfass, où l'été naïf çà et là; İstanbul, ığdır.",
    "Vietnamese": "Trời hôm nay đẹp quá, chúng ta cùng đi dạo ở bờ hồ nhé?",
    "Cyrillic": "Ткач чинит свой станок, а вечером пьёт чай с вареньем; їжак під ґанком.",
    "Greek": "Ο υφαντής επισκευάζει τον αργαλειό του, και το βράδυ πίνει τσάι. ΣΟΦΟΣ",
    "Arabic": "النساج يصلح نوله، وفي المساء يشرب الشاي مع الأصدقاء ١٢٣٤.",
    "Hebrew": "האורג מתקן את הנול שלו, ובערב הוא שותה תה. שָׁלוֹם",
    "Devanagari": "बुनकर अपना करघा ठीक करता है और शाम को चाय पीता है। १२३",
    "Bengali": "তাঁতি তার তাঁত মেরামত করে এবং সন্ধ্যায় চা খায়।",
    "Tamil": "நெசவாளர் தனது தறியை சரிசெய்கிறார், மாலையில் தேநீர் அருந்துகிறார்.",
    "Telugu": "నేతగాడు తన మగ్గాన్ని బాగు చేసి సాయంత్రం టీ తాగుతాడు.",
    "Gujarati": "વણકર પોતાની સાળ સમારે છે અને સાંજે ચા પીએ છે.",
    "Gurmukhi": "ਜੁਲਾਹਾ ਆਪਣੀ ਖੱਡੀ ਠੀਕ ਕਰਦਾ ਹੈ ਅਤੇ ਸ਼ਾਮ ਨੂੰ ਚਾਹ ਪੀਂਦਾ ਹੈ।",
    "Kannada": "ನೇಕಾರನು ತನ್ನ ಮಗ್ಗವನ್ನು ಸರಿಪಡಿಸುತ್ತಾನೆ.",
    "Malayalam": "നെയ്ത്തുകാരൻ തന്റെ തറി നന്നാക്കുന്നു.",
    "Sinhala": "වියන්නා තම අල්ව අලුත්වැඩියා කරයි.",
    "Thai": "ช่างทอผ้าซ่อมกี่ของเขา แล้วดื่มชาในตอนเย็น ๑๒๓",
    "Lao": "ຊ່າງຕ່ຳແຜ່ນສ້ອມແປງກີ່ຂອງລາວ.",
    "Khmer": "ជាងតម្បាញជួសជុលកីរបស់គាត់។",
    "Myanmar": "ရက်ကန်းသမားသည် သူ၏ရက်ကန်းကို ပြင်သည်။",
    "Tibetan": "ཐགས་མཁན་གྱིས་ཐགས་ཁྲི་བཟོས།",
    "Georgian": "მქსოველი თავის დაზგას აკეთებს და საღამოს ჩაის სვამს.",
    "Armenian": "Ջուլհակը նորոգում է իր հաստոցը և երեկոյան թեյ խմում։",
    "Ethiopic": "ሸማኔው መሣሪያውን ይጠግናል፤ ማታም ሻይ ይጠጣል።",
    "Hangul": "직조공은 베틀을 고치고 저녁에는 차를 마신다. 각 값",
    "Japanese": "織工は織機を直し、夕方にはお茶を飲む。カタカナとﾊﾝｶｸ、１２３！",
    "Han": "织工修理他的织布机，晚上喝茶。繁體字也在這裡，一二三。",
    "Mongolian": "ᠨᠡᠬᠡᠮᠡᠯᠴᠢᠨ ᠪᠠᠶᠢᠨ᠎ᠠ",
    "Cherokee": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎤᏬᏚᎯ",
}
CODE = [
    "for (size_t i = 0; i < n; ++i) sum += x[i]*y[i];  // dot product",
    "def weave(threads: list[str], *, colour='red') -> None:\n\treturn \"\\n\".join(threads)",
    "SELECT name, COUNT(*) FROM looms WHERE year>=1999 GROUP BY name;",
    "<div class=\"row\"><a href='https://example.org/a?b=c&d=%20'>It's</a></div>",
    "{\"id\": 12345678, \"pi\": 3.14159e-10, \"ok\": true, \"list\": [null, -1]}",
    "x = lambda a,b:a**2+b!=0xFF and not(a or b)\r\n    if x: pass\t\t# tabs  ",
    "#include <vector>\n\n\n  template<class T>   T max(T a,T b){return a>b?a:b;}",
]
EMOJI = ["😀", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🇨🇭🇯🇵", "❤️", "☕", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "1️⃣", "🤷🏿‍♀️", "🧵🪡"]
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>",
           "<|begin_of_text|>", "<think>", "Loom", "loom", "<extra>"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " ", "　", " ", "​", "\x0b", "\x85", " ", "▁", "᠎"]
BLOCKS = [  # first, last: blocks as old as the oldest tables that the package has
    (0x20, 0x7e), (0xa0, 0xff), (0x100, 0x17f), (0x180, 0x24f), (0x250, 0x2af), (0x2b0, 0x2ff),
    (0x300, 0x36f), (0x391, 0x3a1), (0x3b1, 0x3c9), (0x400, 0x4ff), (0x531, 0x556), (0x5d0, 0x5ea),
    (0x621, 0x64a), (0x660, 0x669), (0x905, 0x939), (0x93e, 0x94d), (0x995, 0x9a8), (0xb85, 0xb8a),
    (0xc05, 0xc0c), (0xe01, 0xe3a), (0xe40, 0xe5b), (0xe81, 0xe82), (0xf40, 0xf47), (0x1000, 0x1021),
    (0x10d0, 0x10f0), (0x1100, 0x1159), (0x1161, 0x11a2), (0x11a8, 0x11f9), (0x1200, 0x1206),
    (0x13a0, 0x13f4), (0x1780, 0x17b3), (0x1820, 0x1842), (0x1e00, 0x1e9b), (0x1f00, 0x1f15),
    (0x2000, 0x200f), (0x2010, 0x2027), (0x2030, 0x205e), (0x2070, 0x2071), (0x2074, 0x208e),
    (0x20a0, 0x20b5), (0x2100, 0x214b), (0x2153, 0x2183), (0x2190, 0x21ff), (0x2200, 0x22ff),
    (0x2460, 0x24ff), (0x2500, 0x257f), (0x25a0, 0x25ff), (0x2600, 0x2604), (0x2701, 0x2704),
    (0x3001, 0x303f), (0x3041, 0x3096), (0x3099, 0x30ff), (0x3105, 0x312c), (0x3131, 0x318e),
    (0x3200, 0x321c), (0x3260, 0x327b), (0x3300, 0x33ff), (0x3400, 0x4db5), (0x4e00, 0x9fa5),
    (0xa000, 0xa48c), (0xac00, 0xd7a3), (0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xfb1d, 0xfb36),
    (0xfb50, 0xfbb1), (0xfe30, 0xfe44), (0xfe50, 0xfe52), (0xff01, 0xff5e), (0xff61, 0xffdc),
    (0x10300, 0x1031e), (0x10330, 0x1034a), (0x10400, 0x1044f), (0x1d400, 0x1d454), (0x1d7ce, 0x1d7ff),
    (0x1f300, 0x1f320), (0x1f600, 0x1f64f), (0x20000, 0x2a6d6), (0x2f800, 0x2fa1d), (0x1, 0x1f),
    (0x7f, 0x9f), (0xe000, 0xe0ff), (0xfff9, 0xfffd),
]


def make_lines(count, seed=1):
    """Returns `count` lines as bytes: phrases, their mixtures, code, emoji, random characters of each
    block, added tokens in all surroundings, and bytes that are not UTF-8."""
    rng = random.Random(seed)
    phrases = list(PHRASES.values())
    words = [word for phrase in phrases for word in phrase.split()]
    random_character = lambda block: chr(rng.randint(*block))

    def text():
        kind = rng.randrange(10)
        if kind == 0:
            return rng.choice(phrases)
        if kind == 1:
            return rng.choice(CODE)
        if kind == 2:
            return "".join(rng.choice(EMOJI + SPACES[:3]) for _ in range(rng.randint(1, 8)))
        if kind == 3:
            block = rng.choice(BLOCKS)
            return "".join(random_character(block) for _ in range(rng.randint(1, 24)))
        if kind == 4:
            return "".join(random_character(rng.choice(BLOCKS)) for _ in range(rng.randint(1, 24)))
        if kind == 5:
            return "".join(rng.choice(SPECIAL + SPACES + words) for _ in range(rng.randint(1, 8)))
        if kind == 6:
            number = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 9)))
            return rng.choice(["", " ", "$"]) + number + rng.choice(["", "%", "th", ",000.5", "'s"])
        glue = rng.choice([" ", " ", " ", "", "  ", "-", "\n"])
        return glue.join(rng.choice(words) for _ in range(rng.randint(1, 16)))

    lines = [b"", b" ", b"  ", b"\n", "▁".encode(), "▁▁".encode()]
    lines += [phrase.encode() for phrase in phrases + CODE + EMOJI]
    while len(lines) < count:
        line = rng.choice(["", "", "", " ", "  "]) + text() + rng.choice(["", "", "", " ", "\n"])
        raw = bytearray(line.encode())
        if rng.random() < 0.1 and raw:  # broken UTF-8: cut, changed and inserted bytes
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(raw))
                what = rng.randrange(3)
                if what == 0:
                    raw = raw[:at + 1]
                elif what == 1:
                    raw[at] = rng.randrange(256)
                else:
                    raw[at:at] = bytes([rng.choice([0x80, 0xbf, 0xc0, 0xe2, 0xed, 0xf0, 0xf4, 0xff])])
        lines.append(bytes(raw))
    return lines[:count]


def plain_texts():
    """Returns texts of few characters, for vocabularies that must hold every one of them."""
    phrases = list(PHRASES.values())
    return [text for text in phrases[:5] + CODE for _ in range(3)]


def as_text(line):
    return line.decode("utf-8", "replace")


# ---- character maps ------------------------------------------------------------------------------

def character_map(rules):
    """Returns SentencePiece's compiled map of {text: text}: a double array and its values."""
    texts = b""
    trie = {}
    for key, value in sorted(rules.items()):
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += value.encode() + b"\0"
    units, used = {}, {0}

    def place(node, position, label):
        labels = [0 if byte is None else byte for byte in node]
        base = next(b for b in range(1, 1 << 20)
                    if all((b ^ one) not in used for one in labels))
        used.update(base ^ one for one in labels)
        units[position] = label | (None in node) << 8 | (position ^ base) << 10
        for byte, child in node.items():
            if byte is None:
                units[base] = child
            else:
                place(child, base ^ byte, byte)

    place(trie, 0, 0)
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(max(units) + 256))
    return struct.pack("<I", len(array)) + array + texts


SMALL_MAP = {"ﬁ": "fi", "ﬂ": "fl", "①": "1", "②": "2", "½": "1⁄2", "　": " ", "\u00a0": " ", "\u200b": "",
             "Å": "A\u030a", "é": "e\u0301", "ａ": "a", "！": "!", "\t": " ", "™": "TM", "…": "...",
             "ｶ": "カ", "ﾞ": "\u3099", "\u0001": "", "e\u0301": "é", "㍿": "株式会社"}


def sentencepiece_map():
    """Returns the map of nmt_nfkc from the sentencepiece package; None without the package."""
    try:
        import sentencepiece
    except ImportError:
        return None
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PHRASES["Latin"].split() * 4), model_writer=model, vocab_size=40,
        hard_vocab_limit=False, minloglevel=2)

    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            tag = varint()
            if tag & 7 == 2:
                length = varint()
                yield tag >> 3, data[at:at + length]
                at += length
            elif tag & 7 == 5:
                at += 4
            elif tag & 7 == 1:
                at += 8
            else:
                varint()

    normalizer = next(data for field, data in fields(model.getvalue()) if field == 3)
    return next(data for field, data in fields(normalizer) if field == 2)


# ---- tokenizers ----------------------------------------------------------------------------------

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*|"
              r"\s*[\r\n]|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def train(tokenizer, trainer, texts):
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(texts, size, pre_tokenizer=None, normalizer=None, template=None, **settings):
    tokenizer = Tokenizer(models.BPE(**settings))
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    train(tokenizer, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>", "<|begin_of_text|>"],
        initial_alphabet=ALPHABET, show_progress=False), texts)
    if template:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 1)])])
    return tokenizer


def split_then_bytes(*splits):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(one), "isolated") for one in splits]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece_bpe(texts, size, fallback=True, **settings):
    """Returns a BPE model as Llama 2 has it: trained on words that begin with U+2581."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, show_progress=False), texts)
    model = json.loads(tokenizer.to_str())["model"]
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256 if fallback else 0)]
    names = first + [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    return Tokenizer(models.BPE(
        vocab={name: i for i, name in enumerate(names)},
        merges=[tuple(merge.split(" ") if isinstance(merge, str) else merge)
                for merge in model["merges"]],
        unk_token="<unk>", fuse_unk=True, byte_fallback=fallback, **settings))


LLAMA_DECODER = lambda: decoders.Sequence([
    decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def llama2(texts, size, **settings):
    tokenizer = sentencepiece_bpe(texts, size, **settings)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = LLAMA_DECODER()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)
                                  for name in ("<unk>", "<s>", "</s>")])
    return tokenizer


def unigram(texts, size, charsmap=None, normalizer=None, pre_tokenizer=None, fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    steps = ([normalizer] if normalizer else []) + (
        [normalizers.Precompiled(charsmap)] if charsmap else [])
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace()
    special = ["<unk>", "<pad>", "</s>"] + [f"<0x{b:02X}>" for b in range(256 if fallback else 0)]
    train(tokenizer, trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False), texts)
    data = json.loads(tokenizer.to_str())
    data["model"]["byte_fallback"] = fallback
    data["added_tokens"] = [token for token in data["added_tokens"]
                            if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Metaspace()
    if fallback:
        tokenizer.decoder = LLAMA_DECODER()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def bert(texts, size, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(tokenizer, trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False), texts)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def words(texts, pre_tokenizer=None, normalizer=None):
    """Returns a tokenizer of whole words, whose ids show each piece that it is given."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    return train(tokenizer, trainers.WordLevelTrainer(
        vocab_size=60000, special_tokens=["[UNK]"], show_progress=False), texts)


def clip(texts, size):
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    train(tokenizer, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], end_of_word_suffix="</w>",
        initial_alphabet=ALPHABET, show_progress=False), texts)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", 0), ("<|endoftext|>", 0), add_prefix_space=False)
    return tokenizer


def with_added(tokenizer):
    tokenizer.add_tokens([
        AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        AddedToken("<think>", rstrip=True, normalized=False),
        AddedToken("Loom", single_word=True, normalized=True),
        AddedToken("<extra>", lstrip=True, rstrip=True, normalized=True),
        AddedToken("  ", normalized=False), AddedToken("été", normalized=True)])
    return tokenizer


def small_tokenizers(texts):
    return {
        "gpt2": byte_level(texts, 500),
        "llama3": with_added(byte_level(texts, 500, split_then_bytes(GPT4), template=True,
                                        ignore_merges=True)),
        "llama2": llama2(plain_texts(), 700),
        "t5": unigram(plain_texts(), 500, character_map(SMALL_MAP)),
        "bert": with_added(bert(plain_texts(), 500)),
    }


def large_tokenizers(texts):
    made = {
        "gpt2": byte_level(texts, 8000),
        "gpt2_added": with_added(byte_level(texts, 4000)),
        "roberta": with_added(byte_level(
            texts, 4000, pre_tokenizers.ByteLevel(add_prefix_space=True))),
        "llama3": byte_level(texts, 8000, split_then_bytes(GPT4), template=True, ignore_merges=True),
        "qwen2": byte_level(texts, 4000, split_then_bytes(QWEN2), normalizers.NFC()),
        "possessive": byte_level(texts, 4000, split_then_bytes(POSSESSIVE)),
        "gpt4o": byte_level(texts, 4000, split_then_bytes(GPT4O)),
        "deepseek": byte_level(texts, 4000, split_then_bytes(
            r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK)),
        "llama2": llama2(texts, 6000),
        "llama2_added": with_added(llama2(texts, 3000)),
        "no_fallback": llama2(plain_texts(), 600, fallback=False),
        "t5": unigram(texts, 6000, character_map(SMALL_MAP)),
        "unigram_bytes": unigram(plain_texts(), 900, fallback=True),
        "albert": unigram(plain_texts(), 600, character_map(SMALL_MAP), normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
            normalizers.Lowercase()]), pre_tokenizers.Sequence([
                pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])),
        "bert": bert(texts, 8000),
        "bert_added": with_added(bert(texts, 4000)),
        "bert_cased": bert(texts, 6000, lowercase=False, strip_accents=False),
        "bert_plain": bert(texts, 6000, clean_text=False, handle_chinese_chars=False),
        "clip": clip(texts, 4000),
    }
    nmt_nfkc = sentencepiece_map()
    if nmt_nfkc:
        made["xlm"] = unigram(texts, 8000, nmt_nfkc)
    first = sentencepiece_bpe(texts, 3000)
    first.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    first.decoder = LLAMA_DECODER()
    made["metaspace_first"] = with_added(first)
    gemma = sentencepiece_bpe(texts, 3000)
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made["gemma"] = gemma
    made.update(step_by_step(texts))
    return made


def step_by_step(texts):
    """Returns a tokenizer for every pre-tokenizer and normalizer, whose pieces whole words show."""
    made = {}
    p, n = pre_tokenizers, normalizers
    for name, one in {
            "ByteLevel": p.ByteLevel(add_prefix_space=True), "Whitespace": p.Whitespace(),
            "WhitespaceSplit": p.WhitespaceSplit(), "Bert": p.BertPreTokenizer(),
            "Digits": p.Digits(), "DigitsEach": p.Digits(individual_digits=True),
            "CharDelimiterSplit": p.CharDelimiterSplit("e"), "Scripts": p.UnicodeScripts(),
            "FixedLength": p.FixedLength(length=5), "Metaspace": p.Metaspace(),
            "MetaspaceNever": p.Metaspace(prepend_scheme="never"),
            "MetaspaceFirst": p.Sequence([p.Punctuation(), p.Metaspace(prepend_scheme="first")]),
            "BytesThenSplit": p.Sequence([p.ByteLevel(), p.Split("Ġ", "merged_with_next")]),
            "WordEdges": p.Split(Regex(r"\b"), "isolated"),
            "Classes": p.Split(Regex(r"[\w&&[^a-m]]+|[[:upper:]\d]|\h{2}|\W{,2}x"), "isolated"),
            "Options": p.Split(Regex(r"(a(?i)b|the )|\w(?m:.)"), "isolated"),
            "Empty": p.Split(Regex(r"x*"), "isolated"),
            "Lines": p.Split(Regex(r"^.|.$"), "isolated"),
            "SpaceClass": p.Split(Regex(r"[^\S\n]+|\p{Greek}+|\p{^Han}{3}"), "removed"),
    }.items():
        made["pre_" + name] = words(texts, one)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next",
                     "contiguous"):
        made["pre_Punctuation_" + behavior] = words(texts, p.Punctuation(behavior))
        made["pre_Split_" + behavior] = words(texts, p.Split(Regex(r"[\s\d]"), behavior))
        made["pre_Invert_" + behavior] = words(
            texts, p.Split(Regex(r"\w+"), behavior, invert=True))
    for name, one in {
            "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(),
            "Lowercase": n.Lowercase(), "StripAccents": n.StripAccents(), "Nmt": n.Nmt(),
            "Strip": n.Strip(), "StripLeft": n.Strip(right=False), "Prepend": n.Prepend("x "),
            "Replace": n.Replace("e", "ee "), "ReplaceRegex": n.Replace(Regex(r"\d+|\s{2,}"), "#"),
            "Bert": n.BertNormalizer(), "ByteLevel": n.ByteLevel(),
            "Precompiled": n.Precompiled(character_map(SMALL_MAP)),
            "Sequence": n.Sequence([n.NFD(), n.StripAccents(), n.Strip()])}.items():
        made["norm_" + name] = with_added(words(texts, p.Split(" ", "isolated"), one))
    return made


# ---- files ---------------------------------------------------------------------------------------

def write_small(folder):
    folder.mkdir(exist_ok=True)
    texts = [as_text(line) for line in make_lines(400)]
    lines = [line for line in make_lines(20000, seed=2)[::500]]
    expected = {"lines": [base64.b64encode(line).decode() for line in lines]}
    for name, tokenizer in small_tokenizers(texts).items():
        (folder / f"{name}.json").write_text(
            json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")),
            encoding="utf-8")
        ids = [tokenizer.encode(as_text(line)).ids for line in lines]
        expected[name] = {"ids": ids, "text": [tokenizer.decode(one) for one in ids]}
    (folder / "expected.json").write_text(
        json.dumps(expected, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def packed(blobs):
    return b"".join(struct.pack("<I", len(blob)) + blob for blob in blobs)


def write_live(folder):
    """Writes lines (each a 32-bit length and its bytes), and for each tokenizer NAME.json, NAME.ids
    (a length and 32-bit ids for each line) and NAME.text (what decode() gives for them)."""
    lines = make_lines(5000)
    texts = [as_text(line) for line in lines]
    (folder / "lines").write_bytes(packed(lines))
    for name, tokenizer in large_tokenizers(texts).items():
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        ids = [tokenizer.encode(text).ids for text in texts]
        (folder / f"{name}.ids").write_bytes(packed(struct.pack(f"<{len(one)}i", *one) for one in ids))
        (folder / f"{name}.text").write_bytes(packed(tokenizer.decode(one).encode() for one in ids))


def speed_tokenizers(path):
    texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return {
        "gpt2": byte_level(texts, 32000),
        "llama3": byte_level(texts, 32000, split_then_bytes(GPT4), template=True, ignore_merges=True),
        "llama2": llama2(texts, 32000),
        "t5": unigram(texts, 16000),
        "bert": bert(texts, 30000),
    }


def blocks_of(text):
    """Returns blocks of 100 kB or a little more, cut before a newline."""
    data, blocks, begin = text.encode(), [], 0
    while begin < len(data):
        end = data.find(b"\n", begin + 100000)
        blocks.append(data[begin:end if end >= 0 else None].decode())
        begin += len(blocks[-1].encode())
    return blocks


def measure(file, path):
    """Prints megabytes a second of one thread, the first and the best of five runs, for blocks of
    100 kB and for lines, by encode() and by the faster encode_batch_fast()."""
    tokenizer = Tokenizer.from_file(file)
    text = pathlib.Path(path).read_text(encoding="utf-8")
    for name, parts in {"blocks": blocks_of(text), "lines": text.split("\n")}.items():
        first, best = {}, {}
        for _ in range(5):
            for way in ("encode", "encode_batch_fast"):
                begin = time.perf_counter()
                if way == "encode":
                    count = sum(len(tokenizer.encode(part).ids) for part in parts)
                else:
                    count = sum(len(one.ids) for one in tokenizer.encode_batch_fast(parts))
                seconds = time.perf_counter() - begin
                first.setdefault(way, seconds)
                best[way] = min(best.get(way, 1e9), seconds)
        megabytes = len(text.encode()) / 1e6
        for way in best:
            print(f"tokenizers {name} {way}: first {megabytes / first[way]:.2f}, "
                  f"best {megabytes / best[way]:.2f} MB/s, {count} ids")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        write_live(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--speed-files"]:
        for name, tokenizer in speed_tokenizers(pathlib.Path(sys.argv[3])).items():
            tokenizer.save(f"{sys.argv[2]}/{name}.json", pretty=False)
    elif sys.argv[1:2] == ["--speed"]:
        measure(*sys.argv[2:4])
    else:
        write_small(pathlib.Path(__file__).parent / "tokenizers")
