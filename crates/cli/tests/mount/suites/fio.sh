# fio: random writes, every block read back and its checksum compared, with several engines.
for engine in psync mmap libaio; do
    # What is mapped is written in pages.
    test "$engine" = mmap && least=4k || least=512
    for pattern in write randwrite randrw; do
        fio --directory="$1" --name="$engine.$pattern" --ioengine="$engine" --rw="$pattern" \
            --size=8m --bsrange="$least-64k" --bs_unaligned=0 --numjobs=2 --fsync=64 \
            --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --output-format=terse >"$2/out" 2>&1 ||
            { cat "$2/out"; exit 1; }
        rm -f "$1/$engine.$pattern".*
    done
    echo "$engine: verified"
done
