! Writes unformatted records, whose length stands before each and is put there afterwards: write_binary OUT
program write_binary
  implicit none
  character(len=4096) :: path
  real(8) :: values(500)
  integer :: i, k
  call get_command_argument(1, path)
  open(unit=10, file=trim(path), status='replace', action='write', form='unformatted')
  do i = 1, 20
    values = [(real(i * k, 8) / 3, k = 1, 500)]
    write(10) i, values
  end do
  close(10)
end program
