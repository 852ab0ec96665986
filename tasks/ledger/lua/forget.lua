-- Cancels tasks that are open and removes every trace of them.   own: id...   reply: how many there were
-- uses: forgetting
allowed_when_full()
local forgotten = 0
for i = FIRST + 1, #ARGV do
  if forget_task(ARGV[i]) then forgotten = forgotten + 1 end
end
announce()
return forgotten
