-- Tasks of one owner, newest first.   own: owner after limit look states (space-separated; '' for all)
-- reply: {the last id looked at, 1 if there may be more behind it, {id, hash, pttl, metadata, now}...}
-- An id is a place in the order also when its task is gone. Looks at no more than `look` entries, whatever it finds.
allowed_when_full()
local owner, after, limit, wanted = arg(1), arg(2), tonumber(arg(3)), {}
for state in string.gmatch(arg(5), '%S+') do wanted[state] = true end

local out = {'', 0}
local ids = call('ZREVRANGEBYLEX', tasks_key(owner), after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, arg(4))
for _, id in ipairs(ids) do
  local state = call('HGET', task_key(id), 'state')
  if not state then call('ZREM', tasks_key(owner), id)
  elseif arg(5) == '' or wanted[state] then
    if #out - 2 == limit then
      out[2] = 1
      return out
    end
    local hash, pttl = call('HGETALL', task_key(id)), call('PTTL', task_key(id))
    out[#out + 1] = {id, hash, pttl, call('GET', meta_key(id)) or '', NOW}
  end
  out[1] = id
end
if #ids == tonumber(arg(4)) then out[2] = 1 end
return out
