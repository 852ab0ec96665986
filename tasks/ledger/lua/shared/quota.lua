-- Quota: what an owner has stored in files, and whether that is too much.
local function account_of(owner)
  return {files = R .. ':files:' .. owner, ends = R .. ':fileends:' .. owner, bytes = R .. ':filebytes:' .. owner}
end
local LOOKED_AT_FILES = 1000
local function expired_files(account)   -- entries of files whose records are gone by now, and their bytes
  local gone, bytes = call('ZRANGEBYSCORE', account.ends, '-inf', int(NOW), 'LIMIT', 0, LOOKED_AT_FILES), 0
  for _, entry in ipairs(gone) do bytes = bytes + tonumber(string.match(entry, ' (%d+)$')) end
  return gone, bytes
end
local function forget_file(account, entry)  -- "file size"
  local file, size = string.match(entry, '^(%S+) (%d+)$')
  if call('ZREM', account.files, file) == 1 then call('DECRBY', account.bytes, size) end
  call('ZREM', account.ends, entry)
end
-- The reply for an owner whose files and `beside` bytes more are above the quota, nil where there is room; and the
-- entries that have expired. Where more have than one look counts, they are forgotten before anybody is refused because
-- of them; in so many rounds, and by the next who asks. max_bytes: -1: no limit.
local function over_quota(owner, max_bytes, beside)
  local account, bytes, gone, freed = account_of(owner)
  for _ = 1, 5 do
    gone, freed = expired_files(account)
    bytes = tonumber(call('GET', account.bytes) or 0) - freed + beside
    if max_bytes < 0 or bytes <= max_bytes then return nil, gone end
    if #gone < LOOKED_AT_FILES then break end
    for _, entry in ipairs(gone) do forget_file(account, entry) end
    gone = {}
  end
  return {'quota', int(bytes)}, gone
end
