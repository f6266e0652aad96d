# schema.jq - what is wrong with a document, by a schema: one line a fault, none when it fits.
#
#   jq -r --slurpfile schema schemas/hash.json -f schema.jq document.json
#
# Knows the part of JSON Schema (draft 2020-12) that the schemas use: $ref into $defs, type, const, enum, properties,
# required, additionalProperties, items. Another word in a schema is a fault as well, so that none is ignored.
def words: ["$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "enum", "properties",
    "required", "additionalProperties", "items"];

def kind: type | if . == "number" then "number" else . end;

def fits($name):
    if $name == "integer" then type == "number" and . == floor else kind == $name end;

def faults($root; $given; $at):
    . as $value
    | ($given | if has("$ref") then $root["$defs"][.["$ref"] | ltrimstr("#/$defs/")] else . end) as $s
    | if $s == null then "\($at): the schema refers to what it has not"
      else
        ($s | keys - words | .[] | "\($at): the schema has the unknown word \(.)"),
        (if $s | has("type") then
            [$s.type] | flatten | if any(. as $name | $value | fits($name)) then empty
                else "\($at): \($value | kind), wanted \(join(" or "))" end
         else empty end),
        (if ($s | has("const")) and $s.const != $value then "\($at): \($value), wanted \($s.const)" else empty end),
        (if ($s | has("enum")) and ([$value] - $s.enum != []) then "\($at): \($value) is none of \($s.enum)" else empty end),
        (if $value | type == "object" then
            ($s.required // [] | .[] | . as $name | select($value | has($name) | not) | "\($at): \($name) is missing"),
            ($value | keys[] as $name
                | if $s.properties | has($name)? // false then
                      $value[$name] | faults($root; $s.properties[$name]; "\($at).\($name)")
                  elif $s.additionalProperties == false then "\($at): \($name) is in no schema"
                  elif $s.additionalProperties | type == "object" then
                      $value[$name] | faults($root; $s.additionalProperties; "\($at)[\($name)]")
                  else empty end)
         else empty end),
        (if ($value | type == "array") and ($s | has("items")) then
            range($value | length) as $i | $value[$i] | faults($root; $s.items; "\($at)[\($i)]")
         else empty end)
      end;

faults($schema[0]; $schema[0]; "$")
