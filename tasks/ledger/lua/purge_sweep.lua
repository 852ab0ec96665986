-- Removes some of what an owner has: looks at the next keys of Redis, from where the call before has stopped.
-- Tasks are forgotten. A batch or an ingestion ends and leaves its owner's sight; its record stays until its objects are
-- removed, and so does that of a file: `purge_record.lua` and `file_write.lua` remove them. The owner has the mark of a
-- purged one from the first step on, and keeps it.
-- own: owner look (keys of one call, about)
-- reply: {1 the round is over, 1 this round has met nothing of the owner, tasks that were forgotten,
--   {file, stored name, size...}, {kind, record, 1 somebody still works for it...}}
-- Cost: the keys that it looks at; where there are records among them, the units of all claims.
-- uses: forgetting litter
allowed_when_full()
local owner, look = arg(1), arg(2)
call('ZADD', R .. ':purged', 'NX', int(NOW), owner)
local ROUND_MS = 3600000    -- a purge that nobody goes on with begins anew
local ENDED = {completed = true, failed = true, cancelled = true, expired = true}
local KINDS = {batch = 'batches', ingestion = 'ingestions'}
local ALIASES = {alias = true, ['batch-alias'] = true, ['ingestion-alias'] = true}
local round = R .. ':purge:' .. owner

-- A cursor means something to the server that gave it. Another one, or the same after a restart, begins anew.
local server = string.match(call('INFO', 'server'), 'run_id:(%x+)')
local f = call('HMGET', round, 'server', 'cursor', 'met')
if f[1] ~= server then f = {server, '0', '0'} end
local scanned = call('SCAN', f[2], 'MATCH', R .. ':*', 'COUNT', look)
local met, tasks, files, records, queues = f[3] == '1', 0, {}, {}, {}

local function found(id)                -- a task of the owner
  local queue = call('HGET', task_key(id), 'q')
  if queue then
    queues[queue] = queues[queue] or {}
    table.insert(queues[queue], id)
  end
end
local function stop(kind, id, key)      -- nothing new begins for it, and no worker has anything of it to do
  local status = call('HGET', key, 'status')
  if not ENDED[status] then
    call('HSET', key, 'status', 'cancelled', 't_cancelled', int(NOW))
    count_of_documents(KINDS[kind] .. '_cancelled', 1)
  end
  call('HSETNX', key, 'deleted_at', int(NOW))
  call('SREM', R .. ':open-' .. KINDS[kind], id)  -- or a step would remove the record before its objects
  litter(KINDS[kind] .. '/' .. id .. '/ ' .. owner, NOW)
  if kind == 'batch' then
    for _, stage in ipairs({'validate', 'embed', 'assemble'}) do found(id .. '-' .. stage) end
    return
  end
  local n = call('HMGET', key, 'list_number', 'load_number')
  for _, name in ipairs({'list', 'finish'}) do found(id .. '-' .. name .. '-' .. (n[1] or 0)) end
  found(id .. '-load-' .. int((n[2] or 0) - 1))
  for _, page in ipairs(call('HKEYS', R .. ':ingestion-pages:' .. id)) do
    for _, stage in ipairs({'parse', 'embed'}) do found(id .. '-' .. page .. '-' .. stage) end
  end
end

for _, key in ipairs(scanned[2]) do
  local kind, name = string.match(string.sub(key, #R + 2), '^([^:]+):(.*)$')
  if ALIASES[kind] then
    if string.sub(name, 1, #owner + 1) == owner .. ':' then met = true; call('UNLINK', key) end
  elseif (kind == 'task' or kind == 'file' or KINDS[kind]) and call('HGET', key, 'owner') == owner then
    met = true
    if kind == 'task' then found(name)
    elseif kind == 'file' then
      local file = call('HMGET', key, 'stored', 'size')
      for _, part in ipairs({name, file[1], file[2]}) do files[#files + 1] = part end
    else
      stop(kind, name, key)
      records[#records + 1] = {kind, name}
    end
  end
end

for queue, ids in pairs(queues) do
  use_queue(queue)
  for _, id in ipairs(ids) do
    if forget_task(id) then tasks = tasks + 1 end
  end
  announce()                            -- what it tells is of one queue
  ended_ids = {}
end

-- What was claimed goes on until its worker notices, or its lease ends, and may write objects until then.
local busy = {}
if #records > 0 then
  local served = call('HKEYS', R .. ':models')
  served[#served + 1] = '@documents'
  for _, queue in ipairs(served) do
    use_queue(queue)
    for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      for _, ref in ipairs(call('SMEMBERS', claim_key(token))) do busy[string.match(ref, '^[^%s-]*')] = true end
    end
  end
end
local left = {}
for _, record in ipairs(records) do
  for _, part in ipairs({record[1], record[2], busy[record[2]] and 1 or 0}) do left[#left + 1] = part end
end
local over = scanned[1] == '0'
call('HSET', round, 'server', server, 'cursor', scanned[1], 'met', met and not over and 1 or 0)
call('PEXPIRE', round, ROUND_MS)
return {over and 1 or 0, met and 0 or 1, tasks, files, left}
