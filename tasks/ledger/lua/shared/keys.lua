-- API keys, as far as scripts look at them.
local function key_lives(owner)         -- whether there is one with this owner's name that is not revoked
  local record = call('HGET', R .. ':keys', owner)
  return record and not tonumber(cjson.decode(record).revoked)
end
