-- What only the scripts of batches and ingestions need. It goes with them.
-- uses: records task_record
local function int(n) return string.format('%.0f', n) end
local function count_of_documents(name, n)  -- into the counts of the documents queue, whose metrics they are
  call('HINCRBY', R .. ':q:@documents:counts', name, int(n))
end
local function wake_steps() call('PUBLISH', R .. ':steps', 'step') end  -- one may be moved on
local function task_state(id)
  local x = task(id)
  return x and x.t[STATE] or ''
end
local function task_counts(id)          -- items that completed, that failed, tokens
  local x = task(id)
  if not x then return 0, 0, 0 end
  return x.t[COMPLETED], x.t[FAILED], x.t[TOKENS]
end
local function folder_of(kind, id) return (kind == 'batch' and 'batches/' or 'ingestions/') .. id .. '/' end
-- Bytes of a job in Redis, with all that has come since it was made: errors, counts, pages.
local FIELD_BYTES, ENTRY_BYTES = 80, 64 -- beside names and values
local function weigh(kind, id)
  local bytes = RECORD_BYTES
  local function add(key)
    local fields = call('HGETALL', key)
    for _, part in ipairs(fields) do bytes = bytes + #part end
    bytes = bytes + FIELD_BYTES * #fields / 2
  end
  add(record_key(kind, id))
  for _, name in ipairs(BESIDE[kind] or {}) do
    local key = R .. ':' .. kind .. '-' .. name .. ':' .. id
    if name == 'waiting' then bytes = bytes + ENTRY_BYTES * call('LLEN', key) else add(key) end
  end
  return bytes
end
-- Changes what a job stands for, as `edit` does with its JSON. for_ms: as of `place_record`.
local function change_place(kind, id, for_ms, edit)
  local f = call('HMGET', record_key(kind, id), 's', 'weight', 'change')
  local r = cjson.decode(f[1])
  edit(r)
  replace_record(kind, id, cjson.decode(f[1]), f[2], cjson.encode(r), weigh(kind, id), f[3], for_ms)
  save_sums()
end
local function not_open(r)              -- its owner still sees it
  for i, list in ipairs(r.lists) do
    if list == '@open' then table.remove(r.lists, i) end
  end
end
