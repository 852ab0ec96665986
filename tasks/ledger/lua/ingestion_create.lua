-- Stores an ingestion, or finds the one that its alias names. It has no TTL before it has ended.
-- max_open, max_bytes: -1: no limit; bytes are those that the owner has stored, dataset_bytes those in datasets.
-- Behind them: field value...
-- reply: {'ok' | 'joined', id} | {'conflict'} | {'full', open ones} | {'quota', bytes}
--      | {'key', ...} as of SUBMIT: open_jobs, '' where the owner's key has no such limit
-- uses: limits quota records
local id, owner, ttl_ms, alias, digest, max_open, max_bytes, dataset_bytes, open_jobs = named(9)
max_open = tonumber(max_open)
local list = R .. ':ingestions:' .. owner

local repeated = repeated_record('ingestion', id, owner, alias, digest)
if repeated then return repeated end
local open = call('SCARD', R .. ':ingesting:' .. owner)
if max_open >= 0 and open >= max_open then return {'full', open} end
local over = over_quota(owner, tonumber(max_bytes), tonumber(dataset_bytes))
if over then return over end
local refused = jobs_full(owner, tonumber(open_jobs))
if refused then return refused end

-- Above every earlier one's. Not a plain count: a Redis that goes back, or begins anew, would give numbers again that
-- receipts in a sink have already.
local order = math.max(NOW, tonumber(call('GET', R .. ':ingestion-order') or 0) + 1)
refused = store_record('ingestion', list, id, owner, alias, digest, nil, FIRST + 10, 'owner', owner,
  'status', 'queued', 'created', int(NOW), 'ttl', ttl_ms, 'order', int(order))
if refused then return refused end
call('SET', R .. ':ingestion-order', int(order))
call('PERSIST', list)
call('SADD', R .. ':ingesting:' .. owner, id)
call('SADD', R .. ':open-ingestions', id)
wake_steps()
return {'ok', id}
