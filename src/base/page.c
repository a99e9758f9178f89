/* HTML pages. */
#include "src/base/page.h"

#include <string.h>

#include "src/base/output.h"

/* People with colour blindness can tell the colours of the series apart: the first five are Okabe
 * and Ito's. */
static const char common[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d9dde2;"
    "--card:#f6f7f9}"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e8ea;--soft:#9aa4ae;"
    "--line:#31363c;--card:#1c2024}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:1.5rem auto;padding:0 1rem;"
    "color:var(--fg);background:var(--bg);overflow-wrap:anywhere}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .4rem}small,.note{color:var(--soft)}"
    ".c0{--c:#2b83c4}.c1{--c:#d9680f}.c2{--c:#0fa37c}.c3{--c:#cc6fa5}.c4{--c:#d99a0b}"
    ".c5{--c:#49b4d9}.c6{--c:#8a63d2}.c7{--c:#9a7b3c}.c8{--c:#7d8590}.c9{--c:#d0405e}"
    ".ct{--c:var(--fg)}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));"
    "gap:.6rem 1.4rem}figure{margin:0;min-width:0}figcaption{font-weight:600}"
    "figcaption small{font-weight:400}"
    ".plot{position:relative;height:220px;margin:.7rem .9rem 1.7rem 3.4rem;font-size:12px;"
    "color:var(--soft)}"
    ".plot svg{position:absolute;width:100%;height:100%;overflow:visible}"
    ".plot "
    "path{fill:none;stroke:var(--c);stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round;"
    "vector-effect:non-scaling-stroke}"
    ".plot .grid{stroke:var(--line);stroke-width:1}"
    ".plot .dashed{stroke-dasharray:6 5;stroke-width:2.2;"
    "stroke:color-mix(in srgb,var(--c) 55%,var(--fg))}.plot .extent{opacity:.3;"
    "stroke-linecap:butt}"
    ".plot .points{stroke-width:7}"
    ".plot .mark{opacity:.8}.plot .line{stroke-dasharray:2 3}"
    ".y,.x{position:absolute;white-space:nowrap;line-height:1}"
    ".y{right:100%;padding-right:.4rem;transform:translateY(-50%)}"
    ".x{top:100%;padding-top:.4rem;transform:translateX(-50%)}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:.15rem .6rem;text-align:left;vertical-align:top;"
    "border-bottom:1px solid var(--line)}"
    "summary{cursor:pointer;color:var(--soft)}.wide{overflow-x:auto}";

void z3d_page_open(z3d_string *out, const char *title, const char *style) {
    z3d_string_append(out,
                      "%s<meta name=\"viewport\" content=\"width=device-width, "
                      "initial-scale=1\">\n<title>",
                      z3d_output_page.begins);
    z3d_page_text(out, title);
    z3d_string_append(out, "</title>\n<style>%s%s</style>\n</head>\n<body>\n", common, style);
}

void z3d_page_close(z3d_string *out) {
    z3d_string_append(out, "</body>\n</html>\n");
}

/* Control characters and invalid UTF-8 become U+FFFD, so no name can break a page. */
void z3d_page_text(z3d_string *out, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        size_t bytes = z3d_utf8_length(text, left);
        unsigned char c = (unsigned char)*text;
        if (bytes == 0 || c < ' ' || c == 0x7f)
            z3d_string_append(out, "\xef\xbf\xbd");
        else if (c == '<' || c == '>' || c == '&' || c == '"')
            z3d_string_append(out, "&#%d;", c);
        else
            z3d_string_append_bytes(out, text, bytes);
        text += bytes ? bytes : 1;
        left -= bytes ? bytes : 1;
    }
}

const char *z3d_page_colour(int colour) {
    static const char *const names[] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"};
    return colour < 0 ? "ct" : names[colour % Z3D_PAGE_COLOURS];
}
