-- Reads ingestions.   own: id...
-- reply: per id {hash, now, pttl, pages that wait, the first of them, states of the next list, load and finish task,
--                {page, JSON, state of its task, items done, tokens}...}
local NEXT = 8
local out = {}
local function state(task) return call('HGET', task_key(task), 'state') or '' end
for i = FIRST + 1, #ARGV do
  local id = ARGV[i]
  local key, waiting = R .. ':ingestion:' .. id, R .. ':ingestion-waiting:' .. id
  local n = call('HMGET', key, 'list_number', 'load_number')
  local row = {call('HGETALL', key), NOW, call('PTTL', key), call('LLEN', waiting),
    call('LRANGE', waiting, 0, NEXT - 1), state(id .. '-list-' .. (n[1] or 0)),
    state(id .. '-load-' .. int((n[2] or 0) - 1)), state(id .. '-finish-' .. (n[1] or 0))}
  local flat = call('HGETALL', R .. ':ingestion-pages:' .. id)
  for p = 1, #flat, 2 do
    local stage, task = cjson.decode(flat[p + 1]).stage, nil
    if stage == 'parse' or stage == 'embed' then task = task_key(id .. '-' .. flat[p] .. '-' .. stage) end
    local t = task and call('HMGET', task, 'state', 'completed', 'failed', 'tokens') or {}
    row[#row + 1] = {flat[p], flat[p + 1], t[1] or '', (t[2] or 0) + (t[3] or 0), tonumber(t[4] or 0)}
  end
  out[#out + 1] = row
end
return out
