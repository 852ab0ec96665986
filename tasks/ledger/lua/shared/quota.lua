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
local function stored_files(account)    -- bytes, number, and the entries that have expired
  local gone, freed = expired_files(account)
  return tonumber(call('GET', account.bytes) or 0) - freed, call('ZCARD', account.files) - #gone, gone
end
local function forget_file(account, entry)  -- "file size"
  local file, size = string.match(entry, '^(%S+) (%d+)$')
  if call('ZREM', account.files, file) == 1 then call('DECRBY', account.bytes, size) end
  call('ZREM', account.ends, entry)
end
-- What `refuses(bytes, files)` says, and the entries that have expired. Where more have than one look counts, they are
-- forgotten before anybody is refused because of them; in so many rounds, and by the next who asks.
local function judged(account, refuses)
  local bytes, files, gone, refused
  for _ = 1, 5 do
    bytes, files, gone = stored_files(account)
    refused = refuses(bytes, files)
    if not refused or #gone < LOOKED_AT_FILES then break end
    for _, entry in ipairs(gone) do forget_file(account, entry) end
    gone = {}
  end
  return refused, gone
end
-- The reply for an owner who has stored more than this, and so makes nothing new; nil: there is room. -1: no limit.
-- beside: bytes that are in no file.
local function over_quota(owner, max_bytes, max_files, beside)
  local refused = judged(account_of(owner), function(bytes, files)
    bytes = bytes + (beside or 0)
    if max_bytes >= 0 and bytes > max_bytes or max_files >= 0 and files > max_files then
      return {'quota', int(bytes), int(files)}
    end
  end)
  return refused
end
