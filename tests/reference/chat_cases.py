"""Small templates for make_chat.py: written ones, and a grammar to draw expressions from."""

VARIABLES = {
    "i": 7, "j": -3, "z": 0, "f": 2.5, "g": 1e22, "h": -0.0001, "yes": True, "no": False, "nil": None,
    "s": "Hello wörld", "t": "  two  words\n", "e": "", "q": "it's \"quoted\"\t\\", "u": "ΑΩ 😀é",
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "m": [1, "x", None, 2.0, True, [4]], "n": [],
    "d": {"b": 1, "a": {"c": [1, 2], "items": "own"}, "C": None}, "o": {},
    "r": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"v": 3}],
}

CASES = [
    # White space.
    "a\n  {% if i %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%+ if i %}\n  b\n  {%+ endif %}\nc\n\n",
    "a \n {%- if i -%} \n b \n {%- endif +%}\nc",
    "  {# c #}\n  x {# d #} \n y {#- e -#} \n z",
    "a {{- ' b ' -}}\n\n c{{ 1 }}\n d", "\n{{ i }}\n", "{{ i }}\r\n{{ i }}\r{{ i }}\n\n",
    "{% for x in l %}\n    {{ x }}\n{% endfor %}\n", "x{% if i %} \n{% endif %}y",
    "{% if i %}\n\n{% endif %}|\n   {% if i %}{% endif %}   \n", "\t{% if i %}a{% endif %}\t{% if i %}b{% endif %}",
    "{{ '{%' }}{{ '}}' }}{{ {'a': {'b': 1}} }}", "{#- a -#}  {#+ b +#}\n c", "{%- set a = 1 -%}\n\n{{ a }}",
    "{{ 1 }}\n", "{{ 1 }}\n\n", "", "\n", "text", "a\u00a0{%- if i -%}\u2003b{%- endif %}",
    # Statements.
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a - b }}", "{% set a, b = [1] %}",
    "{% set x = 1, %}{{ x }}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}", "{% for x in nope %}a{% else %}b{% endfor %}",
    "{% for x in i %}{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ x }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{% for y in w %}{{ loop.index0 }}{% if y == 'c' %}{% break %}{% endif %}{% endfor %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% if i %}{% set y = 5 %}{% endif %}{{ y }}", "{% if no %}a{% elif nil %}b{% elif e %}c{% else %}d{% endif %}",
    "{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{% set ns.c = ns.a ~ ns.b %}{{ ns.c }}{{ ns is mapping }}", "{% set d.a = 1 %}", "{% set nope.a = 1 %}",
    "{% set x %}a{{ i }}\n{% endset %}[{{ x }}]", "{% set x | upper | trim %} a{{ i }} {% endset %}[{{ x }}]",
    "{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% generation %}{% set q = 1 %}a{{ q }}{% endgeneration %}{{ q }}", "{% for x in l %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1, a=0) }}{{ f(1, 2, 3) }}",
    "{% macro f(a) %}[{{ a }}{{ a is defined }}]{% endmacro %}{{ f() }}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro f() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ f() }}{% set y = 2 %}{{ f() }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% for x in l %}{{ f() }}.{% endfor %}", "{% macro f() %} a {% endmacro %}{{ f()|trim|length }}{{ f() is string }}",
    "{% for x in range(3) %}{{ x }}{% endfor %}{{ range(5, 1, -2)|list }}{{ range(3)[1] }}{{ range(2)|length }}", "{{ range(1, 2, 0) }}", "{{ range(200000)|length }}",
    "{% set range = 3 %}{{ range }}", "{% set loop = 3 %}{{ loop }}", "{% for loop in l %}{{ loop }}{% endfor %}",
    "{{ raise_exception('no') }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %b %B %A %j %-d') }}", "{{ dict(a=1, b=i) }}{{ dict(d, z=2)|length }}{{ dict([['a', 1]]) }}",
    "{% if i %}", "{% endif %}", "{% for x in l %}", "{{ i", "{{ i }", "{% if i }}", "{# c", "{% foo %}", "{% if %}{% endif %}", "{{ }}", "{{ i i }}",
    "{% else %}", "{% for x y in l %}{% endfor %}", "{% for x.y in l %}{% endfor %}", "{% set 1 = 2 %}", "{% break %}", "{% set true = 1 %}", "{% macro f(a=1, b) %}{% endmacro %}",
    # Scopes.
    "{% for x in l %}{% if loop.first %}{% set y = 9 %}{% endif %}{{ y }},{% endfor %}", "{% for x in l %}{% for y in l %}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% set x = 1 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}",
    # Undefined.
    "{{ nope }}", "{{ nope.a }}", "{{ nope['a'] }}", "{{ d.nope }}", "{{ d.nope.a }}", "{{ nope + 1 }}", "{{ nope ~ 1 }}", "{{ nope == nope2 }}", "{{ nope|length }}",
    "{{ nope|upper }}|{{ nope|join }}|{{ nope|list }}", "{{ nope is defined }}{{ nope is undefined }}{{ nope is none }}{{ nope is iterable }}{{ nope is sequence }}", "{{ nope() }}", "{{ not nope }}",
    "{{ 'a' in nope }}", "{{ nope in 'a' }}", "{{ nope in l }}", "{{ nope|int }}", "{{ nope|tojson }}", "{{ nope|default('x') }}{{ nope.a|default('x') }}", "{{ [nope, d.x] }}", "{{ nope < 1 }}", "{{ -nope }}", "{{ nope[1:] }}", "{{ l[nope:] }}",
    "{{ l[9] }}|{{ l['x'] }}|{{ s[99] }}|{{ i.x }}|{{ none.x }}|{{ none['x'] }}|{{ l[-1] }}{{ l[-9] }}", "{{ nope|items|list }}", "{{ nope|first }}", "{{ n|first }}{{ n|last }}", "{{ (i if no) }}", "{{ (i if no).x }}",
    # Printing.
    "{{ m }}", "{{ d }}", "{{ (1,) }}{{ () }}{{ (1, 2) }}{{ 1, 2 }}", "{{ [] }}{{ {} }}", "{{ [q, u, t, '\\x00\\x7f\\u200b\\ue000'] }}", "{{ q }}", "{{ [\"it's\", '\"', \"'\\\"\"] }}", "{{ yes }}{{ no }}{{ nil }}", "{{ d.keys() }}{{ d.values() }}{{ d.items() }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345680.0 }} {{ 1e-4 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1.5e300 * 1e10 }} {{ -0.0 }} {{ 5e-324 }} {{ 1e100 }} {{ 2.50 }}", "{{ 1e308 * 10 }} {{ -(1e308 * 10) }} {{ (1e308 * 10) - (1e308 * 10) }}",
    "{{ 'a\\nb\\t\\\\\\'\\\"\\x41\\u00e9\\U0001F600\\101\\q\\\nc' }}", "{{ 'a' \"b\" 'c' }}",
    # JSON.
    "{{ d|tojson }}", "{{ d|tojson(indent=2) }}", "{{ m|tojson(indent=4) }}", "{{ q|tojson }}{{ u|tojson }}{{ '\\x01\\x7f\\u2028</'|tojson }}", "{{ u|tojson(ensure_ascii=true) }}{{ '\\x7f'|tojson(ensure_ascii=true) }}", "{{ d|tojson(sort_keys=true) }}",
    "{{ d|tojson(separators=(',', ':')) }}", "{{ {'a': []}|tojson(indent=1) }}{{ {}|tojson(indent=1) }}{{ [[]]|tojson(indent=0) }}", "{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ (1, 2)|tojson }}{{ 1e22|tojson }}{{ nil|tojson }}", "{{ range(2)|tojson }}", "{{ d.items()|tojson }}", "{{ [1]|tojson(indent='\\t') }}", "{{ d|tojson|safe }}", "{{ 'a<'|safe + q + '&' }}|{{ q + '<'|safe|string }}|{{ ('a'|safe) ~ q }}|{{ 5|safe + '>' }}",
    # Operators.
    "{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ -7 % 3 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ 7.5 % -2 }}{{ 1 / 2 }}{{ 4 / 2 }}", "{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 2.0 ** 0.5 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1.0 // 0 }}", "{{ 0 ** -1 }}",
    "{{ 1 + 2 ~ 3 }}", "{{ 'a' ~ 1 + 2 }}", "{{ 1 ~ 2 * 3 }}", "{{ 'a' + 1 }}", "{{ 'a' * 3 }}{{ 2 * 'b' }}{{ [1] * 2 }}{{ (1,) * 2 }}{{ 'a' * -1 }}", "{{ [1] + [2] }}{{ (1,) + (2,) }}", "{{ [1] + (2,) }}", "{{ true + true }}{{ true * 2.5 }}", "{{ -true }}{{ +true }}{{ - -1 }}",
    "{{ 1 == 1.0 }}{{ true == 1 }}{{ '1' == 1 }}{{ [1, 2] == [1, 2] }}{{ [1] == (1,) }}{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}{{ none == none }}{{ none == false }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1 == 1 }}", "{{ 'a' < 'b' }}{{ 'Z' < 'a' }}{{ [1, 2] < [1, 3] }}{{ 'é' > 'z' }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ d < d }}", "{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}",
    "{{ 1 in l }}{{ 5 not in l }}{{ 'a' in d }}{{ 'ell' in s }}{{ '' in e }}{{ 1.0 in l }}", "{{ 1 in s }}", "{{ [1] in d }}", "{{ 1 in 1 }}", "{{ not 1 in l }}{{ not (1 in l) }}", "{{ 0 or '' or none }}{{ 1 and 2 }}{{ 0 and x.y.z }}{{ 1 or x.y.z }}", "{{ not not 0 }}{{ not 1 == 2 }}",
    "{{ 1 if yes else 2 }}{{ 1 if no else 2 if no else 3 }}", "{{ 'a' if no }}b", "{{ i is not none and i is not string }}", "{{ i is odd == true }}", "{{ not i is even }}", "{{ - i|abs }}{{ -i|string|length }}", "{{ 1|string ~ 2|string }}", "{{ i is defined }}",
    # Subscripts.
    "{{ s[0] }}{{ s[-1] }}{{ u[0] }}{{ u[3] }}{{ s[7] }}", "{{ s[1:] }}|{{ s[:-1] }}|{{ s[2:4] }}|{{ s[::-1] }}|{{ s[::2] }}|{{ s[-3:] }}|{{ s[5:2] }}|{{ u[1:4] }}", "{{ l[::-1] }}{{ l[1:] }}{{ l[-2:] }}{{ l[:99] }}{{ l[5:] }}{{ l[2:0:-1] }}{{ l[-99:2] }}", "{{ (1, 2, 3)[1:] }}{{ range(5)[1:3]|list }}", "{{ l[::0] }}", "{{ d[1:] }}", "{{ i[1:] }}", "{{ l['1'] }}{{ l[true] }}{{ l[1.0] }}", "{{ l.0 }}{{ d.a.c.1 }}", "{{ d['a']['items'] }}{{ d.a['items'] }}{{ d.a.c[0] }}", "{{ d.a.items()|list|length }}", "{{ d[none] }}{{ d[[1]] }}", "{{ s['upper']() }}", "{{ {1: 'a'}[1.0] }}{{ {true: 'b'}[1] }}", "{{ {'a': 1, 'a': 2} }}", "{{ {[]: 1} }}", "{{ d.keys()[0] }}|", "{{ l[1:2:3:4] }}",
    # Methods.
    "[{{ t.strip() }}][{{ t.lstrip() }}][{{ t.rstrip() }}][{{ s.strip('Hd') }}][{{ s.strip('') }}]", "{{ t.split() }}{{ s.split('o') }}{{ s.split('l', 1) }}{{ t.split(none, 1) }}{{ e.split() }}{{ e.split(',') }}{{ s.split(maxsplit=0) }}", "{{ s.split('') }}", "{{ s.split(1) }}", "{{ s.startswith('He') }}{{ s.endswith(('x', 'd')) }}{{ s.startswith('') }}", "{{ s.startswith(1) }}", "{{ s.startswith(['H']) }}", "{{ s.replace('l', 'LL') }}{{ s.replace('l', '', 1) }}{{ 'ab'.replace('', '-') }}{{ 'é'.replace('', '-', 1) }}", "{{ s.replace('l', 1) }}", "{{ s.upper() }}{{ s.lower() }}{{ s.title() }}{{ 'hELLO wORLD'.capitalize() }}{{ \"it's o'clock\".title() }}{{ 'straße'.upper() }}", "{{ ','.join(w) }}{{ e.join('abc') }}{{ ','.join(d) }}", "{{ ','.join(l) }}", "{{ ','.join(nope) }}", "{{ s.find('o') }}{{ s.find('zz') }}{{ u.find('é') }}{{ s.count('o') }}{{ 'aaaa'.count('aa') }}{{ 'ab'.count('') }}", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028e'.splitlines() }}", "{{ d.get('b') }}{{ d.get('x') }}{{ d.get('x', 5) }}{{ d.get([1]) }}", "{{ d.keys()|list }}{{ d.values()|list|length }}{{ d.items()|first }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ l.count(1) }}{{ l.index(2) }}", "{{ l.index(99) }}", "{{ s.nope() }}", "{{ s() }}", "{{ s.strip(1, 2) }}", "{{ s.strip(foo=1) }}",
    # Filters.
    "[{{ t|trim }}][{{ 'xxaxx'|trim('x') }}][{{ 5|trim }}]", "{{ l|length }}{{ s|count }}{{ u|length }}{{ d|length }}", "{{ i|length }}", "{{ none|length }}", "{{ l|join(',') }}{{ l|join }}{{ r|join(',', attribute='v') }}{{ s|join('.') }}{{ m|join('-') }}{{ l|join(1) }}", "{{ 'foo bar-baz (qux) [a] <b {c d\\'e'|title }}{{ 'HELLO'|capitalize }}{{ 5|upper }}", "{{ s|replace('l', 'L') }}{{ s|replace('l', 'L', 1) }}{{ 121|replace(1, 3) }}", "{{ none|default(1) }}{{ none|default(1, true) }}{{ e|d('x', boolean=true) }}{{ 0|d(5) }}[{{ nope|d }}]", "{{ l|first }}{{ l|last }}{{ s|first }}{{ s|last }}{{ d|first }}{{ d|last }}", "{{ s|list }}{{ d|list }}{{ (1, 2)|list }}", "{{ 5|list }}", "{{ d|items|list }}", "{{ l|items|list }}", "{{ d|dictsort }}{{ {'b': 2, 'a': 3}|dictsort(by='value') }}{{ {'b': 1, 'A': 2}|dictsort(case_sensitive=true) }}{{ {'b': 1, 'A': 2}|dictsort(reverse=true) }}", "{{ d|dictsort(by='value') }}", "{{ 1.5|string ~ none|string ~ l|string }}",
    "{{ '42'|int }}{{ ' 7 '|int }}{{ '4.9'|int }}{{ 'x'|int }}{{ 'x'|int(-1) }}{{ 3.9|int }}{{ -3.9|int }}{{ none|int }}{{ '1_000'|int }}{{ true|int }}{{ '+5'|int }}{{ '-5'|int }}{{ '1e3'|int }}{{ 'inf'|int }}{{ '_1'|int(8) }}", "{{ '4.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ 'x'|float(1.5) }}{{ ' 1e3 '|float }}{{ '-.5'|float }}{{ '5.'|float }}{{ 'nan'|float }}{{ '-inf'|float }}{{ [] |float }}{{ 'infinity'|float }}{{ '+-1'|float }}", "{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 42|round }}{{ 2.1|round(method='ceil') }}{{ 2.9|round(0, 'floor') }}{{ -2.5|round }}{{ 1234.5678|round(2) }}{{ 7|round(1, 'ceil') }}", "{{ -3|abs }}{{ -2.5|abs }}{{ j|abs }}{{ true|abs }}", "{{ 'x'|abs }}", "{{ none|round }}",
    "{{ r|map(attribute='k')|list }}{{ r|map(attribute='k', default='?')|list }}{{ w|map('upper')|list }}{{ l|map('string')|join('+') }}{{ w|map('replace', 'a', 'z')|list }}{{ [d]|map(attribute='a.c')|list }}{{ [[1, 2]]|map(attribute=1)|list }}{{ [[1, 2]]|map(attribute='0')|list }}", "{{ l|map|list }}", "{{ l|map('nope')|list }}", "{{ r|selectattr('k')|list|length }}{{ r|rejectattr('k')|list }}{{ r|selectattr('v', '>', 1)|map(attribute='v')|list }}{{ r|selectattr('k', 'equalto', 'x')|first }}{{ r|selectattr('k', 'defined')|list|length }}{{ r|rejectattr('v', 'in', [1, 2])|list }}", "{{ m|select('string')|list }}{{ m|reject('none')|list }}{{ l|select('odd')|list }}{{ m|select|list }}{{ l|select('gt', 1)|list }}{{ l|reject('==', 1)|list }}", "{{ l|select('nope')|list }}", "{{ l|selectattr|list }}", "{{ r|selectattr('k', 'string')|length }}", "{{ r|selectattr('k.x', 'defined')|list }}",
    "{{ [1, 2, 1, 'a', 'A', 2.0]|unique|list }}{{ ['a', 'A']|unique(case_sensitive=true)|list }}{{ r|unique(attribute='v')|list|length }}{{ [[1], [1]]|unique|list }}", "{{ l|sort }}{{ w|sort }}{{ w|sort(case_sensitive=true) }}{{ w|sort(reverse=true) }}{{ r|sort(attribute='v')|map(attribute='v')|list }}", "{{ m|sort }}", "{{ d|sort }}", "{{ l|reverse|list }}{{ s|reverse }}{{ d|reverse|list }}{{ d.items()|reverse|list }}", "{{ l|select|reverse }}", "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(2, blank=true) }}|{{ 'a\\nb'|indent('> ') }}|{{ 'a\\n'|indent }}|{{ ''|indent }}|{{ 'x'|indent(first=true) }}", "{{ 5|indent }}", "{{ l|min }}{{ l|max }}{{ w|min }}{{ w|max }}{{ w|min(case_sensitive=true) }}[{{ n|max }}]{{ r|max(attribute='v') }}", "{{ m|min }}", "{{ l|sum }}{{ l|sum(start=10) }}{{ r|sum(attribute='v') }}{{ n|sum }}{{ [[1], [2]]|sum(start=[]) }}", "{{ w|sum }}", "{{ w|sum(start='') }}", "{{ s|nope }}", "{% if no %}{{ s|upper(1) }}{% endif %}ok", "{{ s|upper(1) }}", "{{ d|length|string|length }}",
    "{% set x = l|map('string') %}{{ x|list }}{{ x|list }}", "{% set x = l|select %}{{ x|first }}{{ x|list }}", "{{ l|map('string')|last }}", "{{ (l|map('string'))[0] }}|", "{{ 2 in l|select }}", "{{ l|select is iterable }}{{ l|select is sequence }}{{ true if l|select('gt', 9) else false }}",
    # Tests.
    "{{ i is number }}{{ f is number }}{{ yes is number }}{{ s is number }}{{ i is integer }}{{ yes is integer }}{{ f is float }}{{ yes is boolean }}{{ i is boolean }}", "{{ s is string }}{{ l is string }}{{ d is mapping }}{{ l is mapping }}{{ l is sequence }}{{ d is sequence }}{{ s is sequence }}{{ i is sequence }}{{ d.keys() is sequence }}{{ l is iterable }}{{ i is iterable }}{{ none is iterable }}{{ range(2) is sequence }}", "{{ yes is true }}{{ no is false }}{{ 1 is true }}{{ 0 is false }}{{ none is none }}{{ nil is none }}", "{{ i is odd }}{{ i is even }}{{ j is odd }}{{ 2.0 is even }}{{ i is divisibleby 7 }}{{ i is divisibleby(2) }}", "{{ s is odd }}", "{{ i is equalto 7 }}{{ i is eq(7) }}{{ i is ne 7 }}{{ i is gt 3 }}{{ i is lt 3 }}{{ i is ge 7 }}{{ i is le 7 }}{{ i is in l }}{{ 1 is in(l) }}{{ 'a' is in 'abc' }}", "{{ i is nope }}", "{{ i is defined is true }}", "{{ i is eq 7 and yes }}{{ i is eq 7 or no }}", "{{ i is not eq 7 }}", "{{ l is eq [3, 1, 2] }}{{ d.a.c is eq d.a.c }}", "{{ i is equalto(7, 8) }}",
    "{{ loop }}", "{{ loop.index }}", "{{ messages }}|", "{{ 007 }}", "{{ 10 }}", "{{ 1.5.x }}|", "{{ a.b. }}", "{{ a..b }}", "{{ (1 }}", "{{ [1, }}", "{{ {1} }}", "{{ {1: } }}", "{{ f(a=1, 2) }}", "{{ @ }}", "{{ 'abc }}", "{{ 1 +}}", "{{ * 2 }}", "{{ i is }}", "{{ i | }}", "{{ i not l }}", "{{ true.x }}|{{ True }}{{ None }}{{ False }}{{ TRUE }}", "{{ [1, 2,] }}{{ (1, 2,) }}{{ {'a': 1,} }}{{ dict(a=1,) }}",
    # Blocks of filters, and formats.
    "{% filter upper %}a{{ s }}{% endfilter %}|{% filter trim|replace('a', 'b') %} a {% endfilter %}|",
    "{% filter indent(2) %}a\nb{% for x in l %}{{ x }}{% endfor %}{% endfilter %}", "{% filter nofilter %}{% endfilter %}",
    "{{ '<{}|{}>'.format(1, 'b') }}{{ '{1}{0}{1}'.format('a', 2.5) }}{{ '{x}{{}}{}'.format(l, x=none) }}",
    "{{ '{}'.format() }}", "{{ '{}{0}'.format(1) }}", "{{ '{0}{}'.format(1) }}", "{{ '{x}'.format(y=1) }}", "{{ '}'.format() }}",
    "{{ '{'.format() }}",
]

# ---- drawn expressions ---------------------------------------------------------------------------

ATOMS = ["i", "j", "z", "f", "h", "yes", "no", "nil", "s", "t", "e", "q", "u", "l", "w", "m", "n", "d", "o", "r",
         "nope", "0", "1", "2", "3.5", "'a'", "'b c'", "''", "[]", "[1, 'x']", "(1, 2)", "{'k': 1}", "none", "d.a",
         "d.a.c", "d.b", "r[0]", "r[0].k", "i % 4", "h % j"]
BINARY = ["+", "-", "*", "//", "/", "~", "==", "!=", "<", ">=", "and", "or", "in", "not in"]
FILTERS = ["length", "upper", "lower", "trim", "list", "string", "first", "last", "join('-')", "int", "float",
           "default('z')", "default('z', true)", "tojson", "sort", "unique|list", "reverse", "abs", "round", "title",
           "capitalize", "min", "max", "sum", "map('string')|list", "select|list", "reject('none')|list", "items|list",
           "dictsort", "replace('a', 'bb')", "indent(2)", "map(attribute='k')|list", "selectattr('k')|list", "count"]
TESTS = ["defined", "none", "string", "number", "integer", "mapping", "sequence", "iterable", "boolean", "true",
         "odd", "even", "in l", "eq 1", "not none", "not string", "divisibleby 2"]
METHODS = ["strip()", "split()", "split('l')", "upper()", "title()", "startswith('H')", "endswith('d')",
           "replace('o', '0')", "get('b')", "get('x', 0)", "items()|list", "keys()|list", "values()|list",
           "lstrip('H')", "find('l')", "capitalize()"]
SUBSCRIPTS = ["0", "-1", "1", "'b'", "'k'", "1:", ":2", "::-1", "-2:", "1:9:2"]


def draw(rng, depth=0):
    kind = rng.random()
    if depth >= 3 or kind < 0.2:
        return rng.choice(ATOMS)
    inner = draw(rng, depth + 1)
    if kind < 0.45:
        return f"({inner})|{rng.choice(FILTERS)}" if rng.random() < 0.5 else f"{rng.choice(ATOMS)}|{rng.choice(FILTERS)}"
    if kind < 0.65:
        return f"{inner} {rng.choice(BINARY)} {draw(rng, depth + 1)}"
    if kind < 0.73:
        return f"({inner}) is {rng.choice(TESTS)}"
    if kind < 0.83:
        return f"({inner}).{rng.choice(METHODS)}"
    if kind < 0.92:
        return f"({inner})[{rng.choice(SUBSCRIPTS)}]"
    if kind < 0.96:
        return f"{inner} if {draw(rng, depth + 1)} else {draw(rng, depth + 1)}"
    return rng.choice(["not ", "-"]) + f"({inner})"
