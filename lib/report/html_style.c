/* SPDX-License-Identifier: Apache-2.0 */
/* html_style.c - the style sheet and the script of every page: light and dark, for a phone and for
 * a desk; search, sort a table, copy a key. */
#include "lib/base/order.h"
#include "lib/report/html_priv.h"

const char *const dcpk_html_style[] = {
    /* colours */
    ":root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1d1f;--dim:#6b6f76;--line:#e4e4e1;"
    "--card:#fff;--heat:31 95 "
    "133;--accent:#2f6f8f;--good:#24733f;--bad:#b3261e;--warn:#8a5a00;--box:62% "
    "84%;--edge:40% 60%;"
    "--ink:30% 22%}\n",
    "@media(prefers-color-scheme:dark){:root{--bg:#141517;--fg:#e6e6e3;--dim:#9a9ea6;"
    "--line:#2b2d31;--heat:122 196 "
    "232;--card:#1b1c1f;--accent:#6db3d3;--good:#74c98f;--bad:#f2897f;--warn:#e2b454;--"
    "box:32% 27%;"
    "--edge:30% 45%;--ink:45% 82%}}\n",
    /* text */
    "*{box-sizing:border-box}\n",
    "html{-webkit-text-size-adjust:100%}\n",
    "body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;font-variant-numeric:tabular-nums}\n",
    "main{max-width:1080px;margin:0 auto;padding:40px 24px 80px}\n",
    "header{margin-bottom:28px}\n",
    ".command{margin:0;color:var(--dim);font-size:13px;letter-spacing:.02em}\n",
    "h1{margin:2px 0 4px;font-size:26px;line-height:1.25;font-weight:600;letter-spacing:-.01em;"
    "overflow-wrap:anywhere}\n",
    ".sub{margin:0;color:var(--dim);overflow-wrap:anywhere}\n",
    "h2{margin:40px 0 12px;font-size:17px;font-weight:600;line-height:1.35}\n",
    "h2::first-letter{text-transform:uppercase}\n",
    "p{margin:8px 0;overflow-wrap:anywhere}\n",
    ".dim,.left{color:var(--dim)}\n",
    ".left{font-size:13px}\n",
    ".good{color:var(--good);font-weight:600}\n",
    ".bad{color:var(--bad);font-weight:600}\n",
    ".warn{color:var(--warn)}\n",
    "[hidden]{display:none!important}\n",
    /* what the script adds */
    ".find{display:flex;gap:12px;align-items:center;margin:0 0 24px}\n",
    ".find input{flex:0 1 320px;min-width:0;padding:7px 12px;border:1px solid var(--line);"
    "border-radius:8px;background:var(--card);color:inherit;font:inherit;font-size:14px}\n",
    ".find output{color:var(--dim);font-size:13px}\n",
    "th[tabindex]{cursor:pointer}th[aria-sort]{color:var(--fg)}\n",
    "th[aria-sort=ascending]::after{content:\" \\2191\"}"
    "th[aria-sort=descending]::after{content:\" \\2193\"}\n",
    ".leaf .name[tabindex],.key[tabindex]{cursor:copy}\n",
    ".done::after{content:\" \\2713 copied\";color:var(--good)}\n",
    /* the first screen */
    ".verdict{margin:10px 0 0}\n",
    ".badge{display:inline-block;padding:3px 14px;border:1.5px solid;border-radius:16px;"
    "background:var(--card)}\n",
    ".figures{display:flex;flex-wrap:wrap;gap:4px 48px;margin:0 0 20px}\n",
    ".figures p{margin:0;color:var(--dim);font-size:14px}\n",
    ".figures strong{display:block;color:var(--fg);font-size:34px;font-weight:600;line-height:1.2;"
    "letter-spacing:-.02em}\n",
    ".stack{margin:0 0 20px}\n",
    ".stack div{display:flex;gap:2px;height:22px;border-radius:6px;overflow:hidden}\n",
    ".stack i{min-width:3px;flex-basis:0}\n",
    ".stack i,.stack li::before{background:hsl(var(--h) var(--edge))}\n",
    ".stack .good,.stack .warn,.stack .bad{--h:0}\n",
    ".stack i.good,.stack .good::before{background:var(--good)}\n",
    ".stack i.warn,.stack .warn::before{background:var(--warn)}\n",
    ".stack i.bad,.stack .bad::before{background:var(--bad)}\n",
    ".stack ul,.chips{display:flex;flex-wrap:wrap;gap:4px 20px;list-style:none;margin:8px 0 0;"
    "padding:0;font-size:13px;line-height:1.7}\n",
    ".stack li{color:var(--dim);font-weight:400}\n",
    ".stack li::before{content:\"\";display:inline-block;width:10px;height:10px;"
    "margin-right:7px;border-radius:3px}\n",
    ".chips{gap:8px;margin:0 0 20px}\n",
    ".chips li{padding:5px 14px;border:1px solid;border-left-width:5px;border-radius:8px;"
    "background:var(--card);font-weight:400}\n",
    ".chips strong{display:block;color:var(--fg);font-size:14px;font-weight:600}\n",
    /* facts */
    "dl{display:grid;grid-template-columns:minmax(96px,max-content) minmax(0,1fr);"
    "gap:6px 20px;margin:12px 0;padding:16px 20px;background:var(--card);"
    "border:1px solid var(--line);border-radius:10px}\n",
    "dt{color:var(--dim)}\n",
    "dd{margin:0;overflow-wrap:anywhere}\n",
    /* tables */
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);"
    "border-radius:10px}\n",
    ".scroll:focus-visible{outline:2px solid var(--accent)}\n",
    "table{border-collapse:collapse;width:100%;font-size:14px}\n",
    "th,td{padding:7px 14px;text-align:left;vertical-align:top;"
    "border-bottom:1px solid var(--line)}\n",
    "th{color:var(--dim);font-weight:500;font-size:13px;white-space:nowrap}\n",
    "th::first-letter{text-transform:uppercase}\n",
    "tbody tr:last-child td{border-bottom:0}\n",
    ".num{text-align:right;white-space:nowrap}\n",
    ".key{overflow-wrap:anywhere;min-width:200px}\n",
    ".list{list-style:none;margin:12px 0;padding:4px 20px;background:var(--card);"
    "border:1px solid var(--line);border-radius:10px}\n",
    ".list li{padding:8px 0;border-bottom:1px solid var(--line)}\n",
    ".list li:last-child{border:0}\n",
    ".list p{margin:0}\n",
    /* trees */
    ".tree{padding:8px 16px;background:var(--card);border:1px solid var(--line);"
    "border-radius:10px}\n",
    ".tree details .leaf,.tree details details{margin-left:18px}\n",
    "summary{cursor:pointer;list-style:none}\n",
    "summary::-webkit-details-marker{display:none}\n",
    "summary .name{padding-left:18px;position:relative}\n",
    "summary .name::before{content:\"\\25b8\";position:absolute;left:0;color:var(--dim)}\n",
    "details[open]>summary .name::before{content:\"\\25be\"}\n",
    ".leaf .name{padding-left:18px}\n",
    ".leaf,summary{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 12px;padding:4px 0;"
    "border-radius:6px}\n",
    "summary:hover{color:var(--accent)}\n",
    ".name{flex:1 1 220px;min-width:0;overflow-wrap:anywhere}\n",
    ".what{color:var(--dim);font-size:13px}\n",
    ".what span{margin-left:12px}\n",
    ".size{width:92px;text-align:right;white-space:nowrap}\n",
    ".share{height:6px;border-radius:3px;background:var(--line);align-self:center;"
    "overflow:hidden}\n",
    ".share{width:72px}\n",
    ".share i{display:block;height:100%;border-radius:3px;background:var(--accent)}\n",
    /* maps */
    ".map{margin:8px 0;padding:8px 16px;background:var(--card);border:1px solid var(--line);"
    "border-radius:10px}\n",
    ".map .scroll{border:0;margin:8px 0;border-radius:0}\n",
    "svg{display:block;width:100%;min-width:280px;max-width:720px;height:auto}\n",
    "svg text{font:500 22px system-ui,sans-serif;text-anchor:middle;dominant-baseline:central;"
    "fill:hsl(var(--h) var(--ink));pointer-events:none}\n",
    "rect{fill:hsl(var(--h) var(--box));stroke:hsl(var(--h) var(--edge));stroke-width:1.5}\n",
    "svg .axis{fill:var(--dim);font-size:18px}.map svg{max-width:none}\n",
    ".c0{--h:205}.c1{--h:28}.c2{--h:140}.c3{--h:280}.c4{--h:50}.c5{--h:330}.c6{--h:175}"
    ".c7{--h:0}.c8{--h:240}.c9{--h:90}.c10{--h:305}.c11{--h:190}\n",
    ".boxes{list-style:none;margin:8px 0;padding:0;font-size:13px;columns:320px;"
    "column-gap:24px;max-height:320px;overflow-y:auto}\n",
    ".boxes li{padding:2px 0 2px 20px;position:relative;overflow-wrap:anywhere;"
    "break-inside:avoid}\n",
    ".boxes li::before{content:\"\";position:absolute;left:0;top:8px;width:10px;height:10px;"
    "border-radius:3px;background:hsl(var(--h) var(--box));"
    "border:1px solid hsl(var(--h) var(--edge))}\n",
    /* treemaps, heat maps */
    "figure{margin:0 0 24px}\n",
    ".treemap{position:relative;aspect-ratio:2;overflow:hidden;border-radius:8px}\n",
    ".treemap i,.treemap u{position:absolute;overflow:hidden}\n",
    ".treemap i{text-indent:4px;border:1px solid var(--card);background:hsl(var(--h) var(--box));"
    "color:hsl(var(--h) var(--ink));font:12px/1.3 system-ui,sans-serif;text-overflow:ellipsis;"
    "white-space:nowrap}\n",
    ".treemap u{display:flex;align-items:flex-end;padding:0 5px;border:2px solid var(--bg);"
    "color:var(--fg);font:600 11px/1.6 system-ui,sans-serif;text-decoration:none;"
    "white-space:nowrap;opacity:.75;pointer-events:none}\n",
    ".treemap i:hover{filter:brightness(1.15)}\n",
    ".grid table{width:auto;font-size:12px}\n",
    ".grid td,.grid th{padding:0;border:1px solid var(--card)}\n",
    ".grid th{padding:2px 8px;color:var(--dim);font-size:12px;font-weight:400;text-align:left}\n",
    ".grid th::first-letter{text-transform:none}\n",
    ".grid td{min-width:16px;height:22px}\n",
    ".grid tr:first-child th{padding:2px 4px}\n",
    ".grid .warn{background:var(--warn)}.grid .bad{background:var(--bad)}\n",
    ".s0{--s:.12}.s1{--s:.2}.s2{--s:.29}.s3{--s:.38}.s4{--s:.46}.s5{--s:.56}.s6{--s:.67}"
    ".s7{--s:.78}.s8{--s:.89}.s9{--s:1}\n",
    ".grid td[class^=s],.scale i{background:rgb(var(--heat)/var(--s))}\n",
    ".scale{margin:6px 0 0;color:var(--dim);font-size:13px}\n",
    ".scale i{display:inline-block;width:16px;height:11px}"
    ".scale i:first-of-type{margin-left:8px}.scale i:last-of-type{margin-right:8px}\n",
    /* curves */
    "figcaption{margin-bottom:8px;color:var(--dim);font-size:13px}\n",
    ".curves{margin:16px 0;padding:16px 20px;background:var(--card);border:1px solid var(--line);"
    "border-radius:10px}\n",
    ".curves polyline{fill:none;stroke:hsl(var(--h) var(--edge));stroke-width:3}\n",
    ".curves .c1{stroke-dasharray:10 7}.curves path{fill:none;stroke:var(--line);"
    "stroke-width:1.5}\n",
    ".curves svg{max-width:none}.curves text{fill:var(--dim);font-size:16px}.curves "
    ".boxes{columns:auto}\n",
    /* a phone */
    "@media(max-width:600px){main{padding:24px 16px 56px}h1{font-size:22px}"
    "dl{grid-template-columns:minmax(0,1fr);gap:0;padding:12px 16px}dd{margin-bottom:8px}"
    "dt:empty{display:none}.share{display:none}.what{flex-basis:100%;order:3;padding-left:6px}"
    ".tree details .leaf,.tree details details{margin-left:10px}.name{flex-basis:110px}"
    ".key{min-width:170px}svg text,.curves text{font-size:30px}"
    ".treemap{aspect-ratio:1}.figures{gap:4px 32px}.figures strong{font-size:28px}"
    "th,td{padding:7px 10px}}\n",
};
const size_t dcpk_n_html_style = DCPK_COUNT(dcpk_html_style);

const char dcpk_html_script[] =
    "(()=>{\n"
    "const d=document,q=(s,e=d)=>[...e.querySelectorAll(s)];\n"
    /* the whole key of a leaf: its name after those of the nodes around it */
    "const key=n=>{let k=n.textContent;const l=n.closest('.leaf');if(l)\n"
    "for(let p=l.parentElement.closest('details');p;p=p.parentElement.closest('details')){\n"
    "const m=p.querySelector('summary .name');k=m.textContent+(m.dataset.s||'.')+k}return k};\n"
    /* copy a key */
    "q('.leaf .name,td.key').forEach(n=>{n.tabIndex=0;n.title='copy';\n"
    "const copy=()=>{if(!getSelection().isCollapsed)return;const "
    "done=()=>{n.classList.add('done');\n"
    "setTimeout(()=>n.classList.remove('done'),900)};\n"
    "if(navigator.clipboard)navigator.clipboard.writeText(key(n)).then(done,()=>{})\n"
    "else getSelection().selectAllChildren(n)};\n"
    "n.onclick=copy;n.onkeydown=e=>{if(e.key=='Enter')copy()}});\n"
    /* sort a table */
    "const val=t=>{if(/^-?inf/.test(t))return t[0]=='-'?-Infinity:Infinity;\n"
    "const m=/^(-?[\\d.]+(?:e[-+]?\\d+)?)(?: ([KMGTPE])iB)?/.exec(t);\n"
    "return m?m[1]*1024**(m[2]?'KMGTPE'.indexOf(m[2])+1:0):NaN};\n"
    "q('thead').forEach(h=>q('th',h).forEach((c,i)=>{c.tabIndex=0;\n"
    "const sort=()=>{const b=h.parentElement.tBodies[0],n=c.className=='num';\n"
    "const up=c.ariaSort?c.ariaSort!='ascending':!n;q('th',h).forEach(o=>o.ariaSort=null);\n"
    "c.ariaSort=up?'ascending':'descending';\n"
    "const of=r=>r.cells[i]?r.cells[i].textContent:'';\n"
    "const cmp=(a,b)=>{if(!n)return a<b?-1:a>b?1:0;const x=val(a),y=val(b);\n"
    "return isNaN(x)-isNaN(y)||(x<y?-1:x>y?1:0)};\n"
    "[...b.rows].sort((r,s)=>(up?1:-1)*cmp(of(r),of(s))).forEach(r=>b.append(r))};\n"
    "c.onclick=sort;c.onkeydown=e=>{if(e.key=='Enter')sort()}}));\n"
    /* search */
    "const rows=q('tbody tr,.leaf,.list "
    "li').filter(r=>!r.closest('.grid'));if(rows.length<8)return;\n"
    "const text=rows.map(r=>{const n=r.querySelector('.name');\n"
    "return ((n?key(n)+' ':'')+r.textContent).toLowerCase()});\n"
    "const box=d.createElement('p'),find=d.createElement('input'),out=d.createElement('output');\n"
    "box.className='find';find.type='search';find.placeholder='Search the page ( / )';\n"
    "find.setAttribute('aria-label','Search the page');box.append(find,out);\n"
    "d.querySelector('dl,h2').before(box);let kept=null;const nodes=q('.tree details').reverse();\n"
    "find.oninput=()=>{const w=find.value.toLowerCase().split(/\\s+/).filter(x=>x);let n=0;\n"
    "if(w.length&&!kept)kept=nodes.map(t=>t.open);\n"
    "rows.forEach((r,i)=>{r.hidden=!w.every(x=>text[i].includes(x));n+=!r.hidden});\n"
    "nodes.forEach((t,i)=>{t.hidden=!q('.leaf',t).some(l=>!l.hidden);\n"
    "t.open=w.length?true:kept?kept[i]:t.open});if(!w.length)kept=null;\n"
    "out.textContent=w.length?n+' of '+rows.length+' rows':''};\n"
    "d.onkeydown=e=>{if(e.key=='/'&&e.target!=find){e.preventDefault();find.focus()}};\n"
    "})()\n";

/* SHA-256 of its bytes, in base64: what the policy of a page lets run. */
const char dcpk_html_script_hash[] = "SGrtebhszz59V/Ezg6mmimoPJpa2ZwYWkwiGX19CL2Q=";
