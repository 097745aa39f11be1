"""Libraries that people use, through `cudele://`. Each that is not installed is left out, and says so."""

import pytest

pytest.importorskip("fsspec", reason="fsspec is not installed: nothing can use `cudele://`")


def wanted(name):
    # pandas and others warn of what they themselves will change.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore")
        return pytest.importorskip(
            name, reason=f"{name} is not installed: it is not tested with `cudele://`"
        )


pytestmark = pytest.mark.filterwarnings("default")


def test_pandas_reads_what_it_wrote(cluster, top):
    pandas = wanted("pandas")
    table = pandas.DataFrame({"step": range(1000), "loss": [1 / (n + 1) for n in range(1000)]})
    for suffix in ("csv", "csv.gz", "json"):
        path = f"cudele://{top}/table.{suffix}"
        if suffix == "json":
            table.to_json(path)
            assert pandas.read_json(path).shape == table.shape
        else:
            table.to_csv(path, index=False)
            pandas.testing.assert_frame_equal(pandas.read_csv(path), table)
    assert cluster.run("cp", f"{top}/table.csv", "-").startswith(b"step,loss\n0,1.0\n")


def test_pandas_reads_parquet_that_it_wrote_in_a_job(cluster, fs, top):
    pandas = wanted("pandas")
    wanted("pyarrow")
    from cudele.fsspec import CudeleFileSystem

    table = pandas.DataFrame({"part": [0, 0, 1], "value": [1.5, 2.5, 3.5]})
    files = CudeleFileSystem(dir=str(cluster.dir))
    files.mkdir(f"{top}/job")
    with files.decouple(f"{top}/job", "batchfs"):
        table.to_parquet(f"{top}/job", partition_cols=["part"], filesystem=files)
    assert sorted(fs.listdir(f"{top}/job")) == ["part=0", "part=1"]
    back = pandas.read_parquet(f"{top}/job", filesystem=files).sort_values("value")
    assert back["value"].tolist() == [1.5, 2.5, 3.5] and back["part"].astype(int).sum() == 1


def test_pyarrow_writes_scans_and_deletes_a_dataset(cluster, top):
    wanted("pyarrow")
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.fs
    import pyarrow.parquet

    from cudele.fsspec import CudeleFileSystem

    files = pyarrow.fs.PyFileSystem(
        pyarrow.fs.FSSpecHandler(CudeleFileSystem(dir=str(cluster.dir), auto_mkdir=True))
    )
    table = pyarrow.table({"year": [2019, 2020, 2020], "size": [1, 2, 3]})
    pyarrow.dataset.write_dataset(
        table, f"{top}/set", format="parquet", partitioning=["year"], filesystem=files
    )
    found = pyarrow.dataset.dataset(f"{top}/set", partitioning=["year"], filesystem=files)
    rows = found.to_table(filter=pyarrow.compute.field("year") == 2020)
    assert sorted(rows["size"].to_pylist()) == [2, 3]
    info = files.get_file_info(pyarrow.fs.FileSelector(f"{top}/set", recursive=True))
    assert sum(one.is_file for one in info) == 2
    with files.open_output_stream(f"{top}/plain") as stream:
        stream.write(b"arrow")
    with files.open_input_file(f"{top}/plain") as source:
        assert source.read_at(3, 2) == b"row" and source.size() == 5
    files.move(f"{top}/plain", f"{top}/moved")
    files.delete_dir(f"{top}/set")
    assert cluster.run("ls", top) == b"moved\n"


def test_zarr_keeps_an_array(cluster, fs, top):
    zarr = wanted("zarr")
    numpy = wanted("numpy")
    # Zarr expects of a store that nobody has to make its directories.
    options = {"dir": str(cluster.dir), "auto_mkdir": True}
    array = zarr.create_array(
        f"cudele://{top}/array",
        shape=(100, 100),
        chunks=(25, 25),
        dtype="f8",
        storage_options=options,
    )
    array[:] = numpy.arange(10_000).reshape(100, 100)
    array.attrs["unit"] = "K"
    again = zarr.open_array(f"cudele://{top}/array", mode="r", storage_options=options)
    assert again[50, 50] == 5050 and again[:, 99].sum() == sum(range(99, 10_000, 100))
    assert again.attrs["unit"] == "K"
    assert len(list(fs.walk(f"{top}/array"))) > 4
