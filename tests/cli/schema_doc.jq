# schema_doc.jq - a schema as a section of tools/JSON.md: a table of its fields.
def name_of: if .type == null then "any" else [.type] | flatten | join(" or ") end;

def rows($root; $at):
    (if has("$ref") then ($root["$defs"][.["$ref"] | ltrimstr("#/$defs/")]) + (del(.["$ref"])) else . end) as $s
    | ($s.properties // {} | to_entries[] | .key as $key | .value
        | (if has("$ref") then ($root["$defs"][.["$ref"] | ltrimstr("#/$defs/")]) + del(.["$ref"]) else . end) as $f
        | "\($at)\($key)" as $path
        | "| `\($path)` | \($f | name_of)\(if ($s.required // []) | index($key) then "" else ", optional" end) | \($f.description // "") |",
          ($f | rows($root; "\($path)."))),
      (if $s.additionalProperties | type == "object" then
        ($s.additionalProperties
            | (if has("$ref") then ($root["$defs"][.["$ref"] | ltrimstr("#/$defs/")]) + del(.["$ref"]) else . end) as $f
            | "| `\($at)<key>` | \($f | name_of) | \($f.description // "") |", ($f | rows($root; "\($at)<key>.")))
       else empty end),
      (if $s.items != null then
        ($s.items
            | (if has("$ref") then ($root["$defs"][.["$ref"] | ltrimstr("#/$defs/")]) + del(.["$ref"]) else . end) as $f
            | if $f.properties != null or $f.items != null then $f | rows($root; "\($at | rtrimstr("."))[].") else empty end)
       else empty end);

"## \(.title)", "", .description, "", "| field | type | meaning |", "|---|---|---|", rows(.; "")
