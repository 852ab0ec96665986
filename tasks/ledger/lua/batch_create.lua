-- Stores a batch, or finds the one that its alias names.
-- max_open, max_bytes: -1: no limit; bytes are those that the owner has stored.
-- Behind them: field value...
-- reply: {'ok' | 'joined', id} | {'conflict'} | {'full', open ones} | {'memory'} | {'quota', bytes}
--      | {'key', ...} as of SUBMIT: open_jobs, '' where the owner's key has no such limit
-- uses: accounts limits quota records
local id, owner, window_ms, ttl_ms, alias, digest, max_open, max_memory, max_bytes, open_jobs = named(10)
max_open = tonumber(max_open)
-- An open batch waits so long for its workers, however short a time it is kept after its end.
local PATIENCE_MS = 366 * 86400000
local life_ms = tonumber(window_ms) + math.max(tonumber(ttl_ms), PATIENCE_MS)
local key, list, running = R .. ':batch:' .. id, R .. ':batches:' .. owner, R .. ':batches-open:' .. owner

local repeated = repeated_record('batch', id, owner, alias, digest)
if repeated then return repeated end
-- Those whose records ended by themselves no longer count.
local lost = call('ZCOUNT', running, '-inf', int(NOW))
local open = call('ZCARD', running) - lost
if max_open >= 0 and open >= max_open then return {'full', open} end
local over = over_quota(owner, tonumber(max_bytes), 0)
if over then return over end
local refused = jobs_full(owner, tonumber(open_jobs))
if refused then return refused end
local room = memory_room(tonumber(max_memory))
if room and room < 0 then return {'memory'} end

refused = store_record('batch', list, id, owner, alias, digest, life_ms, FIRST + 11, 'owner', owner,
  'status', 'validating', 'created', int(NOW), 'expires', int(NOW + window_ms), 'ttl', ttl_ms)
if refused then return refused end
call('PEXPIRE', key, int(life_ms))
if lost > 0 then call('ZREMRANGEBYSCORE', running, '-inf', int(NOW)) end
call('ZADD', running, int(NOW + life_ms), id)
for _, name in ipairs({list, running}) do
  if call('PTTL', name) < life_ms then call('PEXPIRE', name, int(life_ms)) end
end
call('SADD', R .. ':open-batches', id)
wake_steps()
return {'ok', id}
