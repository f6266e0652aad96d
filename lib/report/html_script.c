/* SPDX-License-Identifier: Apache-2.0 */
/* html_script.c - the script of every page: search, sort a table, copy a key. A page works without
 * it, and its policy runs no other. tests/cli/html.sh checks the hash and the size. */
#include "lib/report/html_priv.h"

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
