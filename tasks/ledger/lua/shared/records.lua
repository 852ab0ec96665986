-- Records: files, keys, marks, batches, ingestions. R:{kind}:{id} is a hash: `s`, JSON; `change`, the random name of its last change;
-- `weight`, its bytes in Redis; of a job also `created`, `order`, and its open pages (job_change.lua). Of the JSON scripts look at
--   owner   whose account it counts in
--   counts  name -> number: what it stands for there: {"stored": 600, "files": 1}, {"jobs": 1}, {"revoked": 1}
--   lists   names of the lists of its kind in which it stands: its owner's id, or one with an "@" (tasks/ledger/redis_keys.py)
--   alias   "scope:name" that leads to it, or ""
--   litter  stored name that the sweep may delete a minute after the record is gone, or ""
-- The end of its life is its place in R:ends and nowhere else: whoever may look at tasks alone never looks there. Whatever
-- changes a record goes through this file, so an account has one place where it grows, and one where it shrinks.
-- uses: owner_account
local GRACE_MS = 60000                  -- nothing that cannot be taken back follows from a state that can: Redis may go back a little
local RECORD_BYTES = 1024               -- key, fields, entries in lists, alias
local JOBS = {batch = true, ingestion = true}
local function record_key(kind, id) return R .. ':' .. kind .. ':' .. id end
-- A job is deleted by a move, for it has left objects: whoever sweeps looks at its end, and housekeeping does not.
local function ends_of(kind) return R .. (JOBS[kind] and ':job-ends' or ':ends') end
local function list_key(kind, list) return R .. ':index:' .. kind .. ':' .. list end
local function alias_key_of(kind, alias) return R .. ':record-alias:' .. kind .. ':' .. alias end
-- Keys, and marks of purged owners. They are few, no owner's, and to revoke or purge must not need memory.
local OF_OPERATOR = {key = true, mark = true}

local function tally_record(kind, r, bytes, n)
  local a = numbers(R .. ':owner:' .. r.owner)
  if not OF_OPERATOR[kind] then a.bytes = a.bytes + n * bytes end
  for name, number in pairs(r.counts) do a[name] = a[name] + n * number end
end
-- Where a record stands. was, r: its JSON before and after, nil where there is none. for_ms: its life from now on, 0: without
-- end, -1: as before.
local function place_record(kind, id, was, r, for_ms, change)
  local stays = {}
  for _, list in ipairs(r and r.lists or {}) do
    stays[list] = true
    call('ZADD', list_key(kind, list), 0, id)
  end
  for _, list in ipairs(was and was.lists or {}) do
    if not stays[list] then call('ZREM', list_key(kind, list), id) end
  end
  if for_ms > 0 then call('ZADD', ends_of(kind), NOW + for_ms, kind .. ':' .. id)
  elseif for_ms == 0 and was then call('ZREM', ends_of(kind), kind .. ':' .. id) end
  if was and was.alias ~= '' and not (r and r.alias == was.alias) then
    local alias_at = alias_key_of(kind, was.alias)
    if string.match(call('GET', alias_at) or '', '^%S+') == id then call('UNLINK', alias_at) end
  end
  if was and was.litter ~= '' and not (r and r.litter == was.litter) then
    call('ZADD', R .. ':litter', NOW + GRACE_MS, was.litter)
  end
  call('HSET', R .. ':changes', kind, change)
end
-- The reply for a request that was made before under this alias, or nil.
local function known_record(kind, alias, digest)
  local id, of = string.match(alias ~= '' and call('GET', alias_key_of(kind, alias)) or '', '^(%S+) (%S+)$')
  if id and call('EXISTS', record_key(kind, id)) == 1 then return of == digest and {'joined', id} or {'conflict'} end
end
-- limits: JSON [[name, what the owner's account may come to], ...]. was: what counts there already, which goes.
local function above_limits(r, was, limits)
  local a = numbers(R .. ':owner:' .. r.owner)
  for _, limit in ipairs(cjson.decode(limits)) do
    local comes_to = a[limit[1]] - (was and was.counts[limit[1]] or 0) + (r.counts[limit[1]] or 0)
    if comes_to > limit[2] then return {'full', limit[1], string.format('%.0f', comes_to)} end
  end
end
-- When a job was accepted, by the clock here, and its order: above that of every earlier one. Not a plain count: a Redis that goes
-- back, or begins anew, would give numbers again that receipts in datasets have already.
local function note_order(key)
  local order = math.max(NOW * 1024 + tonumber(string.sub(redis.sha1hex(key), 1, 2), 16), tonumber(call('GET', R .. ':job-order') or 0) + 1)
  call('SET', R .. ':job-order', string.format('%.0f', order))
  call('HSET', key, 'created', string.format('%.0f', NOW), 'order', string.format('%.0f', order))
  call('PUBLISH', R .. ':jobs', 'job')
end
-- Stores the record in ARGV[at]: kind id JSON change digest for_ms limits part max_memory share.
-- limits: as of `above_limits`. part: 1: of accepted work, so a revoked owner has it too.
-- max_memory: percent of Redis's memory, 0: all of it. share: the owner may fill as many times the memory that is left.
-- Returns the reply, and whether the record is new.
--   {'ok' | 'joined' | 'there', id}: 'there': another call has made one with this id | {'conflict'} | {'revoked'}: the owner
--   is, or is purged | {'full', name, what the account would come to} | {'memory' | 'share'}
local function create_record(at)
  local kind, id, text, change, digest, for_ms, limits, part, max_memory, share = unpack(ARGV, at, at + 9)
  local key, r, bytes = record_key(kind, id), cjson.decode(text), RECORD_BYTES + #text
  local known = known_record(kind, r.alias, digest)
  if known then return known end
  local made_by = call('HGET', key, 'change')
  if made_by then return {made_by == change and 'ok' or 'there', id} end
  local a = numbers(R .. ':owner:' .. r.owner)
  if a.purged > 0 or a.revoked > 0 and part ~= '1' then return {'revoked'} end
  local above = above_limits(r, nil, limits)
  if above then return above end
  local memory = numbers(R .. ':memory')
  if memory.limit > 0 and tonumber(max_memory) > 0 then
    local room = memory.limit * max_memory / 100 - memory.used - bytes
    if room < 0 then return {'memory'} end
    if a.bytes > 0 and a.bytes + bytes > share * room then return {'share'} end
  end
  if OF_OPERATOR[kind] then allowed_when_full() end
  local stored = redis.pcall('HSET', key, 's', text, 'change', change, 'weight', bytes)
  if type(stored) == 'table' and stored.err then
    return string.find(stored.err, 'OOM', 1, true) and {'memory'} or redis.error_reply(stored.err)
  end
  if JOBS[kind] then note_order(key) end
  if r.alias ~= '' then call('SET', alias_key_of(kind, r.alias), id .. ' ' .. digest) end
  tally_record(kind, r, bytes, 1)
  place_record(kind, id, nil, r, tonumber(for_ms), change)
  return {'ok', id}, true
end
-- Gives a record that is there another JSON, and its account with it. bytes: that `was` counts for.
local function replace_record(kind, id, was, bytes, new_text, new_bytes, change, for_ms)
  local r = cjson.decode(new_text)
  tally_record(kind, was, bytes, -1)
  tally_record(kind, r, new_bytes, 1)
  call('HSET', record_key(kind, id), 's', new_text, 'change', change, 'weight', new_bytes)
  place_record(kind, id, was, r, for_ms, change)
end
-- Removes a record with all that stands of it. Returns its JSON, or false where there is none.
local function remove_record(kind, id)
  local key = record_key(kind, id)
  local f = call('HMGET', key, 's', 'weight', 'change')
  if not f[1] then return false end
  local r = cjson.decode(f[1])
  tally_record(kind, r, f[2], -1)
  place_record(kind, id, r, nil, 0, f[3] .. ' gone')
  call('UNLINK', key)
  if JOBS[kind] then call('UNLINK', R .. ':' .. kind .. '-done:' .. id) end
  return f[1]
end
