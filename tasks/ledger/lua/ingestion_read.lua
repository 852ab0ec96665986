-- Reads ingestions.   own: id...
-- reply: per id {hash, now, ms until its end, pages that wait, the first of them, states of the next list, load and finish task,
--                {page, JSON, state of its task, items done, tokens}...}
-- uses: job_records
local SHOWN = 8
local out = {}
for i = OWN, #ARGV do
  local id = ARGV[i]
  local key, waiting = R .. ':ingestion:' .. id, R .. ':ingestion-waiting:' .. id
  local n = call('HMGET', key, 'list_number', 'load_number')
  local row = {call('HGETALL', key), NOW, (call('ZSCORE', ENDS, 'ingestion:' .. id) or NOW) - NOW, call('LLEN', waiting),
    call('LRANGE', waiting, 0, SHOWN - 1), task_state(id .. '-list-' .. (n[1] or 0)),
    task_state(id .. '-load-' .. int((n[2] or 0) - 1)), task_state(id .. '-finish-' .. (n[1] or 0))}
  local flat = call('HGETALL', R .. ':ingestion-pages:' .. id)
  for p = 1, #flat, 2 do
    local stage, name = cjson.decode(flat[p + 1]).stage, nil
    if stage == 'parse' or stage == 'embed' then name = id .. '-' .. flat[p] .. '-' .. stage end
    local completed, failed, tokens = task_counts(name or '')
    row[#row + 1] = {flat[p], flat[p + 1], name and task_state(name) or '', completed + failed, tokens}
  end
  out[#out + 1] = row
end
return out
