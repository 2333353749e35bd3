"""HTML and XML to blocks. A block is (kind, text): "h" heading, "p" paragraph or list item, "x"
what stood in a table or a listing (kept only if it is clearly prose)."""
from lxml import etree

from prose import clean

# Everything below these is left out.
SKIP = frozenset("""script style nav header footer aside form button select textarea svg math object noscript iframe
head template figcaption video audio canvas
programlisting screen synopsis funcsynopsis cmdsynopsis classsynopsis literallayout info bookinfo articleinfo
refentryinfo chapterinfo sectioninfo legalnotice revhistory indexterm index toc bibliography authorgroup
copyright refmeta refsynopsisdiv sgmltag media links credit years license mediaobject imageobject
textobject remark footnote""".split())
SKIP_CLASS = frozenset("""nav navbar navigation navheader navfooter navi navlinks sidebar sphinxsidebar toc toctree-wrapper
tocwrapper contents localtoc related rel footer header header-links headerlink breadcrumb breadcrumbs menu topmenu bottommenu
topnav bottomnav prevnext pagination copyright legalnotice author authors authorgroup revhistory revdate copyrightpage
searchbox search memproto memname memberdecls fragment ttc dynheader directory hlist
doxygen-awesome highlight highlight-default code sourcecode programlisting screen synopsis funcsynopsis refsynopsisdiv
cmdsynopsis indextable genindextable index list-of-tables list-of-figures list-of-examples lot skip-link admonition-todo
sr-only screen-reader footnote footnotes docinfo viewcode-link shortcuts edit-link editsection sphinx-version
src-link srclink source-link sidebar-elems rightdocs since out-of-band page-nav chapter-nav mobile-nav nav-chapters nav-wrapper
sig sig-object descname prototype signature method-signature tocset tocview tocviewlist navsetbottom navsettop versionbox
versionNoNav example-wrap item-decl code-header docblock-short item-table all-items""".split())
# Of these classes, what stands within a paragraph too.
SKIP_INLINE = frozenset("""headerlink viewcode-link editsection edit-link src-link srclink source-link since footnote
sr-only""".split())
HEADINGS = frozenset("h1 h2 h3 h4 h5 h6 title dt term caption subtitle".split())
LOOSE = frozenset("td th pre entry row".split())
BLOCK = HEADINGS | LOOSE | frozenset("""p div section article main body html li ul ol dl dd tr table tbody thead center
blockquote address hr para simpara formalpara listitem varlistentry variablelist itemizedlist orderedlist note tip
warning caution important sect1 sect2 sect3 sect4 sect5 chapter preface appendix page item steps list fieldset
details summary figure lg verse milestone entryfree def bibl docs text glossentry glossdef refsect1 refsect2
refsection refnamediv refpurpose question answer qandaentry informaltable tgroup""".split())


def local(tag):
    return tag.rpartition("}")[2].lower() if isinstance(tag, str) else ""


def walk(root):
    """Blocks of an element tree in the order of the text."""
    blocks, pieces, kinds = [], [], ["p"]

    def flush():
        if pieces:
            text = clean("".join(pieces))
            pieces.clear()
            if text:
                blocks.append((kinds[-1], text))

    events, skipped = etree.iterwalk(root, events=("start", "end")), None
    for event, element in events:
        if event == "start":
            tag = local(element.tag)
            names = " ".join(element.get(name) or "" for name in ("class", "id", "role"))
            left_out = SKIP_CLASS if tag in BLOCK else SKIP_INLINE
            if element is not root and (tag in SKIP or names != "  " and not left_out.isdisjoint(names.lower().split())):
                if tag in BLOCK:
                    flush()
                events.skip_subtree()
                skipped = element
                continue
            if tag in BLOCK:
                flush()
                kinds.append("h" if tag in HEADINGS else "x" if tag in LOOSE or kinds[-1] == "x" else "p")
            elif tag in ("br", "lb", "l"):
                following = element.getnext()
                if following is not None and local(following.tag) == tag and not (element.tail or "").strip():
                    flush()
                pieces.append(" ")
            if tag == "pre":
                listing(element, blocks)
                events.skip_subtree()
            elif element.text:
                pieces.append(element.text)
        else:
            if element is skipped:
                skipped = None
            elif local(element.tag) in BLOCK:
                flush()
                kinds.pop()
            if element.tail and element is not root:
                pieces.append(element.tail)
    flush()
    return blocks


def listing(element, blocks):
    for part in "".join(element.itertext()).split("\n\n"):
        text = clean(part)
        if text:
            blocks.append(("x", text))


def from_html(data):
    parser = etree.HTMLParser(encoding=encoding_of(data), remove_comments=True, remove_pis=True, huge_tree=True)
    root = etree.fromstring(data, parser)
    if root is None:
        return []
    for path in ('.//*[@role="main"]', ".//main", './/div[@class="body"]', './/div[@class="document"]', ".//article", ".//body"):
        found = root.find(path)
        if found is not None:
            blocks = walk(found)
            if blocks:
                return blocks
    return walk(root)


def encoding_of(data):
    try:
        data.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError:
        return "iso-8859-1"


def from_xml(data):
    parser = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True)
    root = etree.fromstring(data, parser=parser)
    return [] if root is None else walk(root)
