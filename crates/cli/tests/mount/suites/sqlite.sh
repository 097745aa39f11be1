# SQLite with a write-ahead log: the program is killed at work, again and again; what it had
# committed is there, and the file is sound.
db=$1/data.db
sqlite3 "$db" "pragma journal_mode=wal; create table t(id integer primary key, text);" >/dev/null
committed=0
for round in 1 2 3 4 5 6 7 8; do
    # It says every commit that it has made.
    : >"$2/said"
    (
        echo "pragma synchronous=full;"
        number=$committed
        while :; do
            number=$((number + 1))
            echo "begin; insert into t values($number, hex(randomblob(700))); commit;"
            echo "select $number;"
        done
    ) | stdbuf -oL sqlite3 -batch "$db" >>"$2/said" 2>/dev/null &
    pipe=$!
    while [ "$(wc -l <"$2/said" 2>/dev/null || echo 0)" -lt $((round * 10)) ]; do sleep 0.05; done
    # The last of the pipe is the program.
    kill -9 "$pipe"
    wait "$pipe" 2>/dev/null || true
    said=$(grep -x '[0-9]*' "$2/said" | tail -n 1)
    found=$(sqlite3 "$db" "select count(*) from t;")
    test "$(sqlite3 "$db" "pragma integrity_check;")" = ok
    test "$found" -ge "$said"
    committed=$found
    echo "round $round: $said said, $found found"
done
