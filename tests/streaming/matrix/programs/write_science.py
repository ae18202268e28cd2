"""Writes an array with a library that comes back to its headers: write_science.py OUT hdf5|netcdf|classic"""

import sys

import numpy

out, how = sys.argv[1:]
values = numpy.arange(60_000, dtype="f8").reshape(30, 40, 50) / 3
if how == "hdf5":
    import h5py

    with h5py.File(out, "w") as file:
        field = file.create_dataset("field", shape=values.shape, chunks=(1, 40, 50), dtype="f8", compression="gzip")
        for number in range(30):
            field[number] = values[number]
        file.attrs["made by"] = "the matrix of programs"
else:
    import netCDF4

    with netCDF4.Dataset(out, "w", format="NETCDF4" if how == "netcdf" else "NETCDF3_CLASSIC") as file:
        for name, size in zip(("time", "y", "x"), (None, 40, 50), strict=True):
            file.createDimension(name, size)
        field = file.createVariable("field", "f8", ("time", "y", "x"))
        for number in range(30):
            field[number] = values[number]
        file.title = "the matrix of programs"
