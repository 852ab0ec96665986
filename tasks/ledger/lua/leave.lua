-- A drain ends.   own: worker warm token   reply: bell due
-- warm: it did work, so the bell is rung once more and a trickle finds the worker lingering again.
-- token: with which it asked and waited, or ''. What it was handed since is given back.
-- uses: leases turns wakeup
allowed_when_full()
call('ZREM', LINGER, arg(1))
if arg(3) ~= '' then
  drop_claim(arg(3), true)
  announce()
end
if arg(2) == '1' then return bell_due() end
return ready() > 0 and wake() or 0
