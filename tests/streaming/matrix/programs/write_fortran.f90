! Writes a formatted file: write_fortran OUT
program write_fortran
  implicit none
  character(len=4096) :: path
  integer :: i
  call get_command_argument(1, path)
  open(unit=10, file=trim(path), status='replace', action='write')
  do i = 1, 1500
    write(10, '(i6, f12.4, a)') i, sqrt(real(i)), ' from fortran'
    if (mod(i, 200) == 0) flush(10)
  end do
  close(10)
end program
