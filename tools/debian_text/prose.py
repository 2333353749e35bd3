"""Which paragraphs are English prose, and how paragraphs are compared.

A paragraph is kept if most of its words are plain words (letters, an apostrophe, a hyphen, then
punctuation), enough of them are frequent English words, and it is not boilerplate. Thresholds are
constants here; they were chosen by looking at random paragraphs on both sides of each.
"""
import re
import unicodedata
import zlib

# Frequent words of English that are rare in other languages with Latin letters. In English
# technical prose they are a third of all words.
FREQUENT = frozenset("""
the of and to a in is that for it as with be by on this are or an from at which not can if you but has
have will was were all one when they their there its your more other these may only each then than
so no any into use used using out some such must should does we he she his her him them i my me our
up been had would what who where how about also because between after before same two first new how
unto thou thy shall ye hath upon
""".split())

PLAIN = re.compile(r"""["'(\[]*[A-Za-z\u00c0-\u024f]+(?:['/.-][A-Za-z\u00c0-\u024f]+)*[\])"']*[.,;:!?]*[)"'\]]*$""")
CODE = re.compile(r"[_=<>{}\\|^~@#$%*/+]|\(\)|::|->|\w\.\w+\(|[a-z][A-Z]|\d")
ENDS = re.compile(r"""[.!?:;][)"'\]]*$""")
FOREIGN = re.compile(r"[\u0100-\u1fff\u2c00-\ud7ff\U00010000-\U0010ffff]")
WORD = re.compile(r"[a-z]+")
SPACE = re.compile(r"\s+")
SAME = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " ", "\u00ad": None,
                      "\u200b": None, "\ufeff": None, "\u2060": None, "\u00b6": None, "\uf0c1": None, "\u2026": "...",
                      "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\u2010": "-",
                      "\u2011": "-", "\u2032": "'", "\u00b4": "'", "\ufffd": None, "\u0000": None, "\u00a7": None})

BOILERPLATE = re.compile("|".join((
    r"copyright (\(c\)|\u00a9|\d{4}|by)", r"^\W*(\(c\)|\u00a9) ?\d{4}", r"all rights reserved",
    r"permission is (hereby )?granted", r"this (program|software|library|document(ation)?|file|manual|package|work|module) is "
    r"(free software|distributed|licensed|released|provided|published|part of)", r"without (any|even the implied) warrant",
    r"general public licen[sc]e", r"free documentation license", r"creative commons", r"apache license", r"mit license",
    r"bsd license", r"artistic license", r"redistributions? (of|in|and)\b.*(source|binary)", r"terms and conditions",
    r"under the (same )?terms (of|as)", r"\blicen[sc]e(s|d)? (for more|under|file|text)", r"liable for any",
    r"(trademarks?|registered marks?) (of|or|owned)", r"generated (by|on|with|using|from)\b.*(doxygen|sphinx|texi2html|javadoc|"
    r"latex2html|docbook|automatically|yelp|pod2|\d{4})", r"^(built|created|generated|powered|made) (with|using|by)\b",
    r"last (updated|modified|changed|revised|edited)", r"this (page|document|file|section|html) (was|is|has been) (last|auto|generated)",
    r"^(next|previous|prev|up|home|top|back|contents|index|return to|go to|jump to|skip to|see also|table of contents)\b.{0,60}$",
    r"javascript", r"your browser", r"\bcookies?\b.*\b(site|browser)", r"click here", r"<https?:[^>]*>$",
    r"report(ing)? bugs? (to|at|in)", r"bugs? reports? (to|should|can|may)", r"mailing list",
    r"^(authors?|maintainers?|written by|edited by|translated by|contributors?)\b", r"lorem ipsum",
    r"^(returns?|param|parameters|see|since|deprecated|throws|type|default|note)\W*\w*\W*$",
    r"reimplemented from|implements \w+|inherit(ed|ance) (from|diagram)|definition at line|referenced by|references \w+\(",
    r"^this is the complete list of members", r"^(source|view|edit|show) (code|source|on|this page)",
    r"(main developers?|lead author|co-?authors?)\b.*@")))
BOILERPLATE_REACH = 240  # characters from the start: longer paragraphs that only mention a licence are kept


def clean(text):
    """One line in NFC, with plain quotes and single spaces."""
    text = SPACE.sub(" ", text.translate(SAME)).replace(" ()", "").strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def frequent_share(words):
    return sum(w in FREQUENT for w in words) / max(1, len(words))


def is_prose(text, strict=False):
    """Whether the clean paragraph is English prose; strict for what stood in a table or a listing."""
    tokens = text.split(" ")
    n = len(tokens)
    if n < (10 if strict else 5) or len(text) > 12 * n or len(text) < 3 * n or " | " in text or "----" in text:
        return False
    lower = WORD.findall(text.lower())
    plain = sum(1 for t in tokens if PLAIN.match(t))
    if plain < (0.85 if strict else 0.7) * n:
        return False
    if len(CODE.findall(text)) > (0.1 if strict else 0.3) * n:
        return False
    if frequent_share(lower) < (0.28 if strict else 0.22 if n >= 10 else 0.15):
        return False
    if not ENDS.search(text) and (n < 10 or strict or not text[0].isalnum()):
        return False
    if n >= 20 and len(set(lower)) < 0.3 * min(len(lower), 120):
        return False
    if text[0].islower() and n < 8 or not (text[0].isalnum() or text[0] in "\"'(["):
        return False
    capitals = sum(1 for t in tokens if t[0].isupper())
    if capitals > 0.6 * n and n < 60:  # names, titles
        return False
    return BOILERPLATE.search(text[:BOILERPLATE_REACH].lower()) is None


def heading(text):
    """The clean heading without its number, or "" if it is not one in words."""
    text = re.sub(r"^((chapter|section|appendix|part)\s+)?([0-9]+(\.[0-9A-Za-z]+)*|[A-Z](\.[0-9]+)+)[.:)]*\s+", "", text, flags=re.I)
    tokens = text.split(" ")
    if not 1 <= len(tokens) <= 14 or len(text) < 3 or len(text) > 100 or not text[0].isupper() or re.search(r"\w\.\w", text):
        return ""
    plain = sum(1 for t in tokens if PLAIN.match(t) or t in "&-:")
    if plain < 0.75 * len(tokens) or CODE.search(text) or BOILERPLATE.search(text.lower()):
        return ""
    return text


def is_english(paragraphs):
    """Of a document: frequent words are a fifth of its words, and few letters are not ASCII."""
    text = " ".join(paragraphs).lower()
    foreign = 0 if text.isascii() else len(FOREIGN.findall(text))
    return frequent_share(WORD.findall(text)) >= 0.2 and foreign <= 0.02 * len(text)


def fingerprint(text):
    """(hash, sketch) of a paragraph: the hash of its words in lower case without digits and
    punctuation, and the 6 smallest hashes of its runs of 4 words (none below 12 words)."""
    words = WORD.findall(text.lower())
    exact = zlib.crc32(" ".join(words).encode()) << 32 | zlib.adler32("".join(words).encode())
    if len(words) < 12:
        return exact, ()
    runs = {zlib.crc32(" ".join(words[i:i + 4]).encode()) for i in range(len(words) - 3)}
    return exact, tuple(sorted(runs)[:6])
