# schema_doc.jq - a schema as a section of tools/JSON.md: a table of its fields. The fields of a definition are listed
# where it is first used.
def name_of: if .type == null then "any" else [.type] | flatten | join(" or ") end;

# The schema that a reference names, and what stands next to the reference.
def resolved($root):
    if has("$ref") then ($root["$defs"][.["$ref"] | ltrimstr("#/$defs/")]) + del(.["$ref"]) else . end;

# The definition whose fields begin with $path: of an object, or of each object in an array.
def definition($path):
    if has("$ref") then [.["$ref"], $path] elif .items | type == "object" then .items | definition("\($path)[]") else null end;

# {row, definition: of the fields that follow, within: definitions of the row} for each field, in order.
def rows($root; $at; $within):
    def field($path; $note):
        definition($path) as $definition
        | resolved($root) as $f
        | {row: "| `\($path)` | \($f | name_of)\($note) | \($f.description // "")", $definition, $within},
          ($f | rows($root; "\($path)."; $within + [$definition // empty]));

    resolved($root) as $s
    | $s
    | (.properties // {} | to_entries[] | .key as $key
        | (if ($s.required // []) | index($key) then "" else ", optional" end) as $note
        | .value | field("\($at)\($key)"; $note)),
      (.additionalProperties | objects | field("\($at)<key>"; "")),
      (.items | objects | select(resolved($root) | .properties != null or .items != null)
        | rows($root; "\($at | rtrimstr("."))[]."; $within));

"## \(.title)", "", .description, "", "| field | type | meaning |", "|---|---|---|",
(foreach rows(.; ""; []) as $r ({};
    .first as $first
    | .row = null
    | if any($r.within[]; $first[.[0]] != .[1]) then .
      elif $r.definition == null then .row = $r.row
      elif $first[$r.definition[0]] == null then .first[$r.definition[0]] = $r.definition[1] | .row = $r.row
      else .row = "\($r.row); fields as of `\($first[$r.definition[0]])`" end;
    .row | strings | "\(.) |"))
