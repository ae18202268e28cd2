"""Reads an array with a scientific library and tells what is in it: read_science.py IN OUT hdf5|netcdf"""

import sys

path, out, how = sys.argv[1:]
if how == "hdf5":
    import h5py

    with h5py.File(path, "r") as file:
        values, words = file["field"][:], dict(file.attrs)
else:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        values, words = file["field"][:], {name: file.getncattr(name) for name in file.ncattrs()}
with open(out, "w") as file:
    file.write(f"{values.shape} {values.sum()} {values[-1, -1, -1]} {words}\n")
