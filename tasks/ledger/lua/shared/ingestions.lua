-- Ingestions: how one changes, whole or not at all.
-- uses: job_records

-- Changes one if it is as expected. Returns whether it did, and its status now or ''.
-- m: expected are states [status...], equal [[field, value]...], stages [[page, stage or '']...], begin [entry...] (the
-- first ones that wait). To be done: to (status or ''), set [[field, value]...], unset [field...],
-- add [[field, number]...], put [[page, JSON]...], drop [page...], wait [entry...], close [[page, JSON]...]
local function move_ingestion(id, m)
  local key, waiting = R .. ':ingestion:' .. id, R .. ':ingestion-waiting:' .. id
  local pages, closed = R .. ':ingestion-pages:' .. id, R .. ':ingestion-closed:' .. id
  local f = call('HMGET', key, 'status', 'ttl', 'owner')
  local TERMINAL = {completed = true, failed = true, cancelled = true}
  local IN_METRICS = {loaded = true, unchanged = true, failed = true, chunks_embedded = true}

  local function fits()
    local ok = false
    for _, state in ipairs(m.states) do ok = ok or state == f[1] end
    if not ok then return false end
    for _, pair in ipairs(m.equal) do      -- a number that is absent is 0
      local value = call('HGET', key, pair[1]) or ''
      if value ~= pair[2] and not ((value == '' or value == '0') and (pair[2] == '' or pair[2] == '0')) then
        return false
      end
    end
    for _, pair in ipairs(m.stages) do
      local page = call('HGET', pages, pair[1])
      if (page and cjson.decode(page).stage or '') ~= pair[2] then return false end
    end
    for i, entry in ipairs(m.begin) do
      if call('LINDEX', waiting, i - 1) ~= entry then return false end
    end
    return true
  end

  local function keep()                   -- open again
    change_place('ingestion', id, 0, function(r)
      not_open(r)
      r.counts, r.lists[#r.lists + 1] = {jobs = 1, ingestions = 1}, '@open'
    end)
    no_litter(folder_of('ingestion', id) .. ' ' .. f[3])
  end
  local function let_go()
    change_place('ingestion', id, tonumber(f[2]), function(r) r.counts = {} end)
    litter(folder_of('ingestion', id) .. ' ' .. f[3], NOW)
    if not call('HGET', key, 'resumable') then call('DEL', waiting) end
  end

  if not fits() then return false, f[1] or '' end
  for _, pair in ipairs(m.set) do
    if string.find(pair[1], '^setback_') and call('HGET', key, pair[1]) ~= pair[2] then  -- a repeated call counts once
      count_of_documents('setbacks_' .. string.match(pair[2], '%S+$'), 1)
    end
    call('HSET', key, pair[1], pair[2])
  end
  for _, name in ipairs(m.unset) do call('HDEL', key, name) end
  for _, pair in ipairs(m.add) do
    call('HINCRBY', key, pair[1], pair[2])
    if IN_METRICS[pair[1]] and tonumber(pair[2]) > 0 then  -- what is to be done again is taken back, from no total
      count_of_documents('ingested_' .. pair[1], pair[2])
    end
  end
  for _, pair in ipairs(m.put) do call('HSET', pages, pair[1], pair[2]) end
  for _, page in ipairs(m.drop) do call('HDEL', pages, page) end
  for _ = 1, #m.begin do call('LPOP', waiting) end
  for _, entry in ipairs(m.wait) do call('RPUSH', waiting, entry) end
  for _, pair in ipairs(m.close) do call('HSET', closed, pair[1], pair[2]) end
  if m.to == '' then return true, f[1] end
  call('HSET', key, 'status', m.to, 't_' .. m.to, int(NOW))
  if TERMINAL[m.to] and f[1] ~= m.to then count_of_documents('ingestions_' .. m.to, 1) end
  if TERMINAL[m.to] then let_go() elseif TERMINAL[f[1]] then keep() end
  wake_steps()
  return true, m.to
end
