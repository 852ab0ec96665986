-- Records: batches and ingestions, which one kind of script stores.

-- The first write of a script that stores something: HSET of these fields. Redis refuses it when memory is full, before
-- anything has changed. Returns nil, or the error to be replied, which begins with "OOM" when memory is full.
local function store_first(key, ...)
  local stored = redis.pcall('HSET', key, ...)
  if type(stored) == 'table' and stored.err then
    return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
  end
end
-- The reply for a request that was made before, under this alias or with this id; nil: it is new.
local function repeated_record(kind, id, owner, alias, digest)
  if alias ~= '' then
    local alias_at = R .. ':' .. kind .. '-alias:' .. owner .. ':' .. alias
    local other, of = string.match(call('GET', alias_at) or '', '^(%S+) (%S+)$')
    if other and call('EXISTS', R .. ':' .. kind .. ':' .. other) == 1 then
      if of ~= digest then return {'conflict'} end
      return {'joined', other}
    end
  end
  if call('EXISTS', R .. ':' .. kind .. ':' .. id) == 1 then return {'ok', id} end -- this very call, again
end
-- Stores the fields given and those from ARGV[rest] on, enters the record in its owner's list, then sets the alias, for
-- life_ms (nil: without end). Returns as `store_first`.
local function store_record(kind, list, id, owner, alias, digest, life_ms, rest, ...)
  local key = R .. ':' .. kind .. ':' .. id
  local refused = store_first(key, ...)
  if refused then return refused end
  for i = rest, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
  call('ZADD', list, 0, id)
  -- Records expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
  for _, other in ipairs(call('ZRANDMEMBER', list, -2)) do
    if call('EXISTS', R .. ':' .. kind .. ':' .. other) == 0 then call('ZREM', list, other) end
  end
  if alias == '' then return end
  call('HSET', key, 'alias', alias)
  local alias_at = R .. ':' .. kind .. '-alias:' .. owner .. ':' .. alias
  local entry = id .. ' ' .. digest
  if life_ms then call('SET', alias_at, entry, 'PX', int(life_ms)) else call('SET', alias_at, entry) end
end
