// Package mutants breaks the Lua of redisstore on purpose, each time in one place. A suite
// that does not notice one of them does not hold what it says it does.
//
// Each mutant states the text that it replaces. Where that stands in no script any more, the
// tests fail: write the mutant anew for the script as it is, and do not drop it.
package mutants

import "strings"

// Mutant is one fault.
type Mutant struct {
	Name string
	Old  string // a part of one of the scripts' sources, comments included
	New  string
	// By is the test of redisstore that notices it.
	By string
	// Checked tells that a history shows it, too: package history of e2e must notice it.
	Checked bool
}

// Apply returns a script's source with the fault, and whether the script has it at all.
func (m Mutant) Apply(source string) (string, bool) {
	return strings.Replace(source, m.Old, m.New, 1), strings.Contains(source, m.Old)
}

// Named returns the mutant called name.
func Named(name string) (Mutant, bool) {
	for _, m := range All {
		if m.Name == name {
			return m, true
		}
	}
	return Mutant{}, false
}

// All are the mutants.
var All = []Mutant{
	// Consuming.
	{
		Name: "consume does not compare the attempt", By: "TestMiniredis/Consume", Checked: true,
		Old: "  if sub(rec, 33, 44) ~= attempt then\n    return 'used '",
		New: "  if false then\n    return 'used '",
	},
	{
		Name: "consume forgets its own attempt", By: "TestMiniredis/OneAttempt", Checked: true,
		Old: "  if sub(rec, 33, 44) ~= attempt then\n    return 'used '",
		New: "  if true then\n    return 'used '",
	},
	{
		Name: "used and expired are swapped", By: "TestMiniredis/Expiry", Checked: true,
		Old: "if state == USED then\n  if sub(rec, 33, 44) ~= attempt then",
		New: "if state == USED and now >= tonumber(ARGV[at + 2]) then\n  return 'expired ' .. stamp\nend\nif state == USED then\n  if sub(rec, 33, 44) ~= attempt then",
	},
	{
		Name: "a used token is used again", By: "TestMiniredis/OneWinner", Checked: true,
		Old: "if state == ISSUED and not ends and byte(rec, 2) < DELETE",
		New: "if (state == ISSUED or state == USED) and byte(rec, 2) < DELETE",
	},
	{
		Name: "consume does not look at the expiry", By: "TestMiniredis/Expiry",
		Old: "byte(rec, 2) < DELETE and now < tonumber(ARGV[at + 2]) then",
		New: "byte(rec, 2) < DELETE then",
	},
	{
		Name: "a used token's record ends with its life", By: "TestMiniredis/Expiry", Checked: true,
		Old: "  call('SET', key, rec, 'PXAT', drop)\n",
		New: "  call('SET', key, rec, 'KEEPTTL')\n",
	},
	{
		Name: "a used token's record has no end", By: "TestWhatRedisHolds",
		Old: "  call('SET', key, rec, 'PXAT', drop)\n",
		New: "  call('SET', key, rec)\n",
	},
	{
		Name: "consume does not compare the digest", By: "TestMiniredis/Digest", Checked: true,
		Old: "  if kept ~= digest and kept ~= NONE then",
		New: "  if false then",
	},
	{
		Name: "a run of several does not see what it wrote", By: "TestMiniredis/ConsumeBatch",
		Old: "  recs[key] = rec\nend",
		New: "end",
	},
	{
		Name: "a winner's replay writes nothing", By: "TestReplaysWrite",
		Old: "  put(key, rec, string.format('%.0f', ends + 60000))\n  return 'replayed '",
		New: "  return 'replayed '",
	},
	{
		Name: "a completed token is consumed", By: "TestMiniredis/Claim", Checked: true,
		Old: "if state == COMPLETED then\n  return 'used ' .. stamp .. sub(rec, 1, 56)\nend\nif state == REVOKED",
		New: "if state == COMPLETED then\n  return 'consumed ' .. stamp\nend\nif state == REVOKED",
	},
	{
		Name: "a revoked token is consumed", By: "TestMiniredis/Revoke", Checked: true,
		Old: "if state == REVOKED then\n  return 'revoked ' .. stamp .. rec\nend\nif rec and (state ~= ISSUED and state ~= CLAIMED or byte(rec, 2) >= DELETE) then\n  return 'unknown ' .. stamp .. rec\nend\nlocal last",
		New: "if state == REVOKED then\n  return 'consumed ' .. stamp\nend\nlocal last",
	},
	{
		Name: "consume takes over a running lease", By: "TestMiniredis/TakeoverByConsume", Checked: true,
		Old: "  if now < u48(rec, 23) then\n    return 'progress ' .. stamp .. rec\n  end\n  if byte(rec, 2) >= COMMITTED then",
		New: "  if byte(rec, 2) >= COMMITTED then",
	},
	{
		Name: "consume takes over what is committed", By: "TestMiniredis/Commit", Checked: true,
		Old: "  if byte(rec, 2) >= COMMITTED then\n    return 'unfinished ' .. stamp .. rec\n  end\n  number, used",
		New: "  number, used",
	},
	{
		Name: "a consume that takes over keeps the fence", By: "TestMiniredis/TakeoverByConsume",
		Old: "  number, used = number + 1, USED + TAKEOVER",
		New: "  used = USED + TAKEOVER",
	},
	{
		Name: "a consume that takes over forgets the digest", By: "TestMiniredis/TakeoverByConsume",
		Old: "  digest = digest ~= '' and digest or sub(rec, 45, 56)\n",
		New: "",
	},
	{
		Name: "a consume that takes over is forgotten early", By: "TestMiniredis/ClaimedInTime",
		Old: "  ends = math.max(ends, now + u32(rec, 13) * 1000)\nend\nrec = '\\1'",
		New: "end\nrec = '\\1'",
	},
	{
		Name: "a consume that takes over tells nobody", By: "TestMiniredis/ConsumeTells",
		Old: "if state == CLAIMED then\n  tell(key)\nend\n",
		New: "",
	},

	// Issuing.
	{
		Name: "an issue that is sent again writes nothing", By: "TestReplaysWrite",
		Old: "  call('SET', key, rec, 'KEEPTTL')\n  wrote = true\n",
		New: "",
	},
	{
		Name: "an issue that is sent again is for ever", By: "TestIssuedAgainInTime",
		Old: "  call('SET', key, rec, 'KEEPTTL')\n  wrote = true\n",
		New: "  call('SET', key, rec)\n  wrote = true\n",
	},
	{
		Name: "issue takes another's key for its own", By: "TestAnothersKey",
		Old: "      return 'taken ' .. stamp .. call('GET', KEYS[i])\n",
		New: "      return 'issued ' .. stamp\n",
	},
	{
		Name: "issue drops NX", By: "TestMiniredis/IssueAgainUsed",
		Old: "if not call('SET', KEYS[i], made, 'NX', 'EX', ARGV[2]) then",
		New: "if not call('SET', KEYS[i], made, 'EX', ARGV[2]) then",
	},
	{
		Name: "issue sets no expiry", By: "TestWhatRedisHolds",
		Old: "'NX', 'EX', ARGV[2])",
		New: "'NX')",
	},
	{
		Name: "what is refused counts for the rate", By: "TestMiniredis/Rate",
		Old: "      refused = rate\n",
		New: "      refused = rate\n      call('SET', rate, string.format('%.0f', tat), 'PX', 3600000)\n",
	},
	{
		Name: "a batch counts as one for the rate", By: "TestMiniredis/IssueBatch",
		Old: " + n * ARGV[5]\n",
		New: " + ARGV[5]\n",
	},
	{
		Name: "the rate has no end", By: "TestWhatRedisHolds",
		Old: "string.format('%.0f', tat), 'PX', string.format('%.0f', left))",
		New: "string.format('%.0f', tat))",
	},
	{
		Name: "an issue that is sent again is counted again", By: "TestMiniredis/IssueAgain",
		Old: "      local rec = call('GET', KEYS[before + 1])\n      if rec then",
		New: "      local rec\n      if rec then",
	},

	// Reading.
	{
		Name: "GET for GETEX", By: "TestNoClaimRefusalFromBelow",
		Old: "local rec = call('GETEX', KEYS[1])\n",
		New: "local rec = call('GET', KEYS[1])\n",
	},
	{
		Name: "GET for GETEX before a key's refusal", By: "TestNoClaimRefusalFromBelow",
		Old: "  rec = call('GETEX', KEYS[1])\n",
		New: "",
	},
	{
		Name: "GET for GETEX in a run of one", By: "TestNoRefusalFromBelow",
		Old: "  recs[KEYS[1]] = call('GETEX', KEYS[1])\n",
		New: "  recs[KEYS[1]] = call('GET', KEYS[1])\n",
	},
	{
		Name: "no GETEX in a run of several", By: "TestNoRefusalFromBelow",
		Old: "  call('GETEX', KEYS[1])\n  for i",
		New: "  for i",
	},
	{
		Name: "no GETEX where the rate refuses", By: "TestRateRefusalFromBelow",
		Old: "if refused and not wrote then",
		New: "if false then",
	},
	{
		Name: "a record counts past its end", By: "TestMiniredis/Stale",
		Old: "      if now > ends then",
		New: "      if false then",
	},
	{
		Name: "the time has no milliseconds", By: "TestMiniredis/Milliseconds",
		Old: "local now = time[1] * 1000 + floor(time[2] / 1000)",
		New: "local now = time[1] * 1000",
	},

	// Claiming.
	{
		Name: "claim does not look at the lease", By: "TestMiniredis/Claim", Checked: true,
		Old: "local before, running = committed(rec), now < u48(rec, 23)",
		New: "local before, running = committed(rec), false",
	},
	{
		Name: "the lease is compared the wrong way", By: "TestMiniredis/Claim", Checked: true,
		Old: "local before, running = committed(rec), now < u48(rec, 23)",
		New: "local before, running = committed(rec), now > u48(rec, 23)",
	},
	{
		Name: "claim does not compare the attempt", By: "TestMiniredis/Claim", Checked: true,
		Old: "  if sub(rec, 33, 44) == ARGV[1] and (before",
		New: "  if (before",
	},
	{
		Name: "claim forgets its own attempt", By: "TestMiniredis/Claim", Checked: true,
		Old: "  if sub(rec, 33, 44) == ARGV[1] and (before",
		New: "  if false and (before",
	},
	{
		Name: "claim replays what was committed later", By: "TestMiniredis/Commit", Checked: true,
		Old: "(before == 0 or running and before ~= LATER)",
		New: "(before == 0 or running)",
	},
	{
		Name: "claim replays what is committed and over", By: "TestMiniredis/CommitByClaim",
		Old: "(before == 0 or running and before ~= LATER)",
		New: "(before ~= LATER)",
	},
	{
		Name: "claim does not start its own lease anew", By: "TestMiniredis/LeaseOver",
		Old: "    over = running and u48(rec, 23) or over\n",
		New: "    over = u48(rec, 23)\n",
	},
	{
		Name: "a committed claim is taken over", By: "TestMiniredis/Commit", Checked: true,
		Old: "  elseif before ~= 0 and ARGV[8] ~= '1' then",
		New: "  elseif false then",
	},
	{
		Name: "a takeover keeps the fence", By: "TestMiniredis/Takeover", Checked: true,
		Old: "    number, how, takeover = number + 1, before",
		New: "    number, how, takeover = number, before",
	},
	{
		Name: "a takeover is not told", By: "TestMiniredis/Takeover", Checked: true,
		Old: "RESOLVED or how, TAKEOVER\n",
		New: "RESOLVED or how, 0\n",
	},
	{
		Name: "a takeover forgets the digest", By: "TestMiniredis/Takeover",
		Old: "number, hash = fence(rec), hash ~= '' and hash or digest(rec)",
		New: "number = fence(rec)",
	},
	{
		Name: "a resolved claim is not committed", By: "TestMiniredis/Resolve", Checked: true,
		Old: "before ~= 0 and RESOLVED or how, TAKEOVER",
		New: "how, TAKEOVER",
	},
	{
		Name: "claim does not compare the digest", By: "TestMiniredis/ClaimDigest", Checked: true,
		Old: "  if ARGV[2] ~= '' and kept ~= '' and kept ~= ARGV[2] then",
		New: "  if false then",
	},
	{
		Name: "a completed claim is run again", By: "TestMiniredis/Claim", Checked: true,
		Old: "if state == COMPLETED then\n  return 'completed ' .. stamp .. rec\nend\nif state == USED then\n  return 'used ' .. stamp .. rec\nend\nif state == REVOKED then",
		New: "if state == COMPLETED then\n  state = CLAIMED\nend\nif state == USED then\n  return 'used ' .. stamp .. rec\nend\nif state == REVOKED then",
	},
	{
		Name: "a used token is claimed", By: "TestMiniredis/NotClaimable", Checked: true,
		Old: "if state == USED then\n  return 'used ' .. stamp .. rec\nend\nif state == REVOKED then\n  return 'revoked ' .. stamp .. rec\nend\nif rec and (state ~= ISSUED and state ~= CLAIMED or byte(rec, 2) >= DELETE) then\n  return 'unknown ' .. stamp .. rec\nend\n\nlocal of_key",
		New: "if state == USED then\n  state = ISSUED\nend\nif state == REVOKED then\n  return 'revoked ' .. stamp .. rec\nend\n\nlocal of_key",
	},
	{
		Name: "an expired token is claimed", By: "TestMiniredis/NotClaimable",
		Old: "  local refusal = not of_key and by_time(rec, now, tonumber(ARGV[3]), tonumber(ARGV[4]))",
		New: "  local refusal = not of_key and by_time(rec, 0, tonumber(ARGV[3]), tonumber(ARGV[4]))",
	},
	{
		Name: "a claim after a release has the first fence", By: "TestMiniredis/Release", Checked: true,
		Old: "  number = rec and fence(rec) + 1 or 1\n",
		New: "  number = 1\n",
	},
	{
		Name: "a claim's record ends before its lease", By: "TestMiniredis/ClaimedInTime",
		Old: "local until_then = math.max(ends or 0, over)",
		New: "local until_then = ends or 0",
	},
	{
		Name: "a claim brings the end back", By: "TestMiniredis/KeyRetention",
		Old: "local until_then = math.max(ends or 0, over)",
		New: "local until_then = over",
	},
	{
		Name: "a key is not remembered anew", By: "TestMiniredis/KeyRemembered",
		Old: "if of_key or takeover ~= 0 then\n  until_then",
		New: "if takeover ~= 0 then\n  until_then",
	},
	{
		Name: "a takeover is not remembered anew", By: "TestMiniredis/TakeoverRemembered",
		Old: "if of_key or takeover ~= 0 then\n  until_then",
		New: "if of_key then\n  until_then",
	},
	{
		Name: "the end is cut to the token's life", By: "TestMiniredis/ClaimedInTime",
		Old: "  ends = math.max(ends, last)\n  rec = '\\1'",
		New: "  ends = last\n  rec = '\\1'",
	},
	{
		Name: "the end is cut to the lease", By: "TestMiniredis/Takeover",
		Old: "  ends = math.max(ends, last)\n  rec = '\\1'",
		New: "  rec = '\\1'",
	},
	{
		Name: "a claimed record has no end", By: "TestWhatRedisHoldsOfClaims",
		Old: "  call('SET', key, rec, 'PXAT', int(ends + 60000))\n",
		New: "  call('SET', key, rec)\n",
	},
	{
		Name: "a claimed record is dropped at its stated end", By: "TestClaimOutlivesItsEnd",
		Old: "  call('SET', key, rec, 'PXAT', int(ends + 60000))\n",
		New: "  call('SET', key, rec, 'PXAT', int(ends))\n",
	},

	// A claim's later steps.
	{
		Name: "the fence is not compared", By: "TestMiniredis/Release", Checked: true,
		Old: "  local ahead = fence(rec) - tonumber(ARGV[1])\n",
		New: "  local ahead = 0\n",
	},
	{
		Name: "the owner is not compared", By: "TestMiniredis/KeyForgotten",
		Old: "  elseif state ~= REVOKED and attempt == ARGV[2] then",
		New: "  elseif state ~= REVOKED then",
	},
	{
		Name: "neither fence nor owner is compared", By: "TestMiniredis/Takeover", Checked: true,
		Old: "local is = 'ended'\nif rec then",
		New: "local is = 'ended'\nif state == CLAIMED then\n  is = 'held'\nelseif rec then",
	},
	{
		Name: "a claim that was revoked was released", By: "TestMiniredis/RevokeClaimed",
		Old: "local attempt = state == CLAIMED and sub(rec, 33, 44) or NONE",
		New: "local attempt = NONE",
	},
	{
		Name: "a committed claim is released", By: "TestMiniredis/Commit", Checked: true,
		Old: "if how ~= 0 and how ~= RESOLVED then",
		New: "if false then",
	},
	{
		Name: "a resolved claim cannot be released", By: "TestMiniredis/Resolve",
		Old: "if how ~= 0 and how ~= RESOLVED then",
		New: "if how ~= 0 then",
	},
	{
		Name: "release releases nothing", By: "TestMiniredis/Release", Checked: true,
		Old: "rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])\n",
		New: "",
	},
	{
		Name: "release forgets the fence", By: "TestMiniredis/Release", Checked: true,
		Old: "rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])\n",
		New: "rewrite(rec, ISSUED, ends, now, 0, ARGV[2])\n",
	},
	{
		Name: "release forgets whose it was", By: "TestMiniredis/Release",
		Old: "rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])\n",
		New: "rewrite(rec, ISSUED, ends, now, fence(rec), NONE)\n",
	},
	{
		Name: "release tells nobody", By: "TestMiniredis/Wait",
		Old: "rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])\ntell(KEYS[1])\n",
		New: "rewrite(rec, ISSUED, ends, now, fence(rec), ARGV[2])\n",
	},
	{
		Name: "a second release writes nothing", By: "TestReplaysWrite",
		Old: "  write(KEYS[1], rec, ends)\nend\nif is ~= 'held' then",
		New: "end\nif is ~= 'held' then",
	},
	{
		Name: "commit commits nothing", By: "TestMiniredis/Commit", Checked: true,
		Old: "  bits = bits + LATER\n",
		New: "  bits = bits + 0\n",
	},
	{
		Name: "commit does not have a key remembered", By: "TestMiniredis/KeyRetention",
		Old: "  if u32(rec, 9) == 0 then",
		New: "  if false then",
	},
	{
		Name: "renew shortens", By: "TestMiniredis/LeaseOver", Checked: true,
		Old: "local over = math.max(u48(rec, 23), now + tonumber(ARGV[3]))",
		New: "local over = now + tonumber(ARGV[3])",
	},
	{
		Name: "renew changes nothing", By: "TestMiniredis/LeaseOver", Checked: true,
		Old: "local over = math.max(u48(rec, 23), now + tonumber(ARGV[3]))",
		New: "local over = u48(rec, 23)",
	},
	{
		Name: "a renewed lease outlives its record", By: "TestMiniredis/ClaimedInTime",
		Old: "rewrite(rec, byte(rec, 2), math.max(ends, over), over,",
		New: "rewrite(rec, byte(rec, 2), ends, over,",
	},
	{
		Name: "renew takes a commit back", By: "TestMiniredis/RenewCommitted", Checked: true,
		Old: "rewrite(rec, byte(rec, 2), math.max(ends, over), over,",
		New: "rewrite(rec, CLAIMED, math.max(ends, over), over,",
	},
	{
		Name: "a second result replaces the first", By: "TestMiniredis/Claim", Checked: true,
		Old: "if is == 'completed' then\n  -- Written again, changing nothing, so that WAIT has something to wait for.\n  write(KEYS[1], rec, ends)\n  return 'replayed ' .. stamp .. sub(rec, 1, 56)\nend\nif is ~= 'held' then",
		New: "if is ~= 'held' and is ~= 'completed' then",
	},
	{
		Name: "a second completion writes nothing", By: "TestReplaysWrite",
		Old: "  write(KEYS[1], rec, ends)\n  return 'replayed ' .. stamp .. sub(rec, 1, 56)",
		New: "  return 'replayed ' .. stamp .. sub(rec, 1, 56)",
	},
	{
		Name: "a completed claim is not remembered anew", By: "TestMiniredis/KeyRetention",
		Old: "rewrite(rec, COMPLETED, math.max(ends, remembered(rec)), now,",
		New: "rewrite(rec, COMPLETED, ends, now,",
	},
	{
		Name: "complete forgets the digest", By: "TestMiniredis/ClaimDigest", Checked: true,
		Old: "(hash ~= '' and hash or NONE) .. ARGV[3]",
		New: "NONE .. ARGV[3]",
	},
	{
		Name: "complete tells nobody", By: "TestMiniredis/Wait",
		Old: "rest)\ntell(KEYS[1])\nreturn 'completed '",
		New: "rest)\nreturn 'completed '",
	},

	// Revoking and asking.
	{
		Name: "a used token is revoked", By: "TestMiniredis/RevokeTooLate", Checked: true,
		Old: "if state == USED then\n  return 'used ' .. stamp .. rec\nend\nif state == COMPLETED then\n  return 'completed ' .. stamp .. sub(rec, 1, 56)",
		New: "if state == USED then\n  state = ISSUED\nend\nif state == COMPLETED then\n  return 'completed ' .. stamp .. sub(rec, 1, 56)",
	},
	{
		Name: "a committed claim is revoked", By: "TestMiniredis/Commit", Checked: true,
		Old: "if state == CLAIMED and byte(rec, 2) >= COMMITTED then\n  return 'claimed '",
		New: "if false then\n  return 'claimed '",
	},
	{
		Name: "revoke revokes nothing", By: "TestMiniredis/Revoke", Checked: true,
		Old: "write(KEYS[1], rec, ends)\nif state == CLAIMED then",
		New: "if state == CLAIMED then",
	},
	{
		Name: "an expired token is revoked", By: "TestMiniredis/RevokeJustExpired",
		Old: "local refusal = state ~= CLAIMED and by_time(rec, now, expires, last)",
		New: "local refusal = state ~= CLAIMED and by_time(rec, 0, expires, last)",
	},
	{
		Name: "revoke tells nobody", By: "TestMiniredis/Wait",
		Old: "if state == CLAIMED then\n  tell(KEYS[1])\nend\nreturn 'revoked '",
		New: "return 'revoked '",
	},
	{
		Name: "status consumes", By: "TestMiniredis/Model", Checked: true,
		Old: "if rec then\n  return 'found ' .. stamp .. (ARGV",
		New: "if rec then\n  call('DEL', KEYS[1])\n  return 'found ' .. stamp .. (ARGV",
	},
	{
		Name: "status tells no result", By: "TestMiniredis/Results", Checked: true,
		Old: "(ARGV[1] == '1' and rec or sub(rec, 1, 56))",
		New: "sub(rec, 1, 56)",
	},
}
