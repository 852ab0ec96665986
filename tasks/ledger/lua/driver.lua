-- Who drives jobs: the one that holds the key, which ends by itself. In a full Redis too, or nothing would ever be given back.
-- own: name ms (0: it leaves)   reply: 1 it drives
allowed_when_full()
local name, for_ms, key = ARGV[OWN], tonumber(ARGV[OWN + 1]), R .. ':driver'
local holds = call('GET', key)
if holds and holds ~= name then return 0 end
if for_ms == 0 then
  call('DEL', key)
  return 0
end
call('SET', key, name, 'PX', for_ms)
return 1
